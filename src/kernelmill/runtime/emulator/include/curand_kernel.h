#error "the emulator has no cuRAND (curand_kernel.h)"
