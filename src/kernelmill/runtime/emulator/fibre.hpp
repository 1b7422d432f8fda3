// fibre.hpp - stacks that take turns on one OS thread: how one is left for another. Who goes next is in scheduler.hpp.
#pragma once
#include <sys/mman.h>

#if !defined(__x86_64__) || defined(KM_EMU_UCONTEXT)
#include <ucontext.h>
#endif

namespace km_emu {

struct Fibre {
  void* pointer;  // where it goes on: a stack pointer, or a ucontext_t
  Fibre* next;    // in the list of those without work
};

#if defined(__x86_64__) && !defined(KM_EMU_UCONTEXT)

// Six registers belong to the caller; everybody switches through this one place, so that returns stay predictable.
extern "C" void km_emu_switch(void** save, void* to);
__asm__(R"(
.pushsection .text
.globl km_emu_switch
.hidden km_emu_switch
.type km_emu_switch,@function
km_emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size km_emu_switch, .-km_emu_switch
.popsection
)");

inline void switch_to(void** save, void* to) { km_emu_switch(save, to); }

inline void* first_pointer(char* low, char* top, void (*main)()) {
  (void)low;
  void** at = (void**)top;
  *--at = nullptr;  // the stack of `main` is aligned as after a call
  *--at = (void*)main;
  for (int i = 0; i < 6; i++) *--at = nullptr;
  return at;
}

#else

inline void switch_to(void** save, void* to) {
  ucontext_t here;
  *save = &here;
  swapcontext(&here, (ucontext_t*)to);
}

inline void* first_pointer(char* low, char* top, void (*main)()) {
  ucontext_t* context = (ucontext_t*)(((uintptr_t)top - sizeof(ucontext_t)) & ~(uintptr_t)63);
  getcontext(context);
  context->uc_stack.ss_sp = low;
  context->uc_stack.ss_size = (size_t)((char*)context - low);
  context->uc_link = nullptr;
  makecontext(context, main, 0);
  return context;
}

#endif

}  // namespace km_emu
