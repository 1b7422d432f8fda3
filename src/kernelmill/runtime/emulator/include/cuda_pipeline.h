#error "the emulator has no this form of asynchronous copies (cuda_pipeline.h)"
