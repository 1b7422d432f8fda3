#error "the emulator has no tensor cores (mma.h)"
