#error "the emulator has no tensor maps (cudaTypedefs.h)"
