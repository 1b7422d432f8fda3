#error "the emulator has no textures (texture_fetch_functions.h)"
