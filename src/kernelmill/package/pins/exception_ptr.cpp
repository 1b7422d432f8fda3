// How references to an exception are counted. GCC 12 compiles calls of two functions that libstdc++ exports since then
// (CXXABI_1.3.13); the constructor and the destructor of std::exception_ptr, which do the same, are in all (CXXABI_1.3.3).
extern "C" {
void kernelmill_copy(void* self, const void* other) __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void kernelmill_drop(void* self) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");
void kernelmill_add(void* self) __asm__("_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void kernelmill_release(void* self) __asm__("_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");

void kernelmill_add(void* self) {
  void* copy = nullptr;
  kernelmill_copy(&copy, self);  // it is never destroyed: that is the reference
}

void kernelmill_release(void* self) {
  void* last = *static_cast<void**>(self);
  *static_cast<void**>(self) = nullptr;
  kernelmill_drop(&last);
}
}
