// A failed assertion ends the launch, not the process.
#include "emulator/device.hpp"
