#error "the emulator has no cuBLAS (cublas_v2.h)"
