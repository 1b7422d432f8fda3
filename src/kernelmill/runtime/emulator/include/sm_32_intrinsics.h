// The emulator's form of this header.
#pragma once
#include "emulator/device.hpp"
