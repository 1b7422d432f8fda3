// Macros of a torch binding: the namespace and the module are named by the build, not by the source.
#pragma once

#include <cstddef>

#define KERNELMILL_CONCAT_(A, B) A##B
#define KERNELMILL_STRINGIFY_(A) #A
#ifndef CONCAT
#define CONCAT(A, B) KERNELMILL_CONCAT_(A, B)
#endif
#ifndef STRINGIFY
#define STRINGIFY(A) KERNELMILL_STRINGIFY_(A)
#endif

// The macros of torch, with names that may be macros themselves.
#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
#define STABLE_TORCH_LIBRARY_EXPAND(NAME, MODULE) STABLE_TORCH_LIBRARY(NAME, MODULE)
#define TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)
#define STABLE_TORCH_LIBRARY_IMPL_EXPAND(NAME, DEVICE, MODULE) \
  STABLE_TORCH_LIBRARY_IMPL(NAME, DEVICE, MODULE)

// A Python module without Python.h: this layout is part of Python's stable ABI (of builds with the GIL), and a
// user needs no Python headers. The function has a name of its own, so that Python.h may be included as well.
extern "C" {
struct kernelmill_module {
  std::ptrdiff_t references;
  void* type;
  void* (*init)();
  std::ptrdiff_t index;
  void* copy;
  const char* name;
  const char* doc;
  std::ptrdiff_t size;
  void *methods, *slots, *traverse, *clear, *free;
};
void* kernelmill_module_create(kernelmill_module*, int) __asm__("PyModule_Create2");
}

// Lets the shared library be imported as an empty module; loading it is what registers the operators.
#define REGISTER_EXTENSION(NAME)                                                                  \
  extern "C" __attribute__((visibility("default"))) void* CONCAT(PyInit_, NAME)() {               \
    static kernelmill_module module = {1,       nullptr, nullptr, 0,       nullptr, STRINGIFY(NAME), nullptr, 0, \
                                       nullptr, nullptr, nullptr, nullptr, nullptr};              \
    return kernelmill_module_create(&module, 3);                                                  \
  }
