/* Stands before glibc's header of this name, which would import a symbol of glibc 2.32.
   Zero means: count references with atomics, always. */
#pragma once
static const char __libc_single_threaded = 0;
