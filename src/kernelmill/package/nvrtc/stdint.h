// The integer types of <stdint.h>, which NVRTC does not have.
#pragma once
#include <cstdint>
