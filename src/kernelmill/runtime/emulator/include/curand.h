#error "the emulator has no cuRAND (curand.h)"
