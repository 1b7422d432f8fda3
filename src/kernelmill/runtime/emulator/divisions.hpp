// divisions.hpp - integer divisions that a processor stops at and a GPU does not: by zero, and of the least number by -1.
#pragma once
#include <signal.h>

#include "state.hpp"

#if defined(__x86_64__) && !defined(KM_EMU_SANITIZER)  // the sanitizer reports them
#include <ucontext.h>

namespace km_emu {

// Where the operand of an instruction is, and where the next instruction begins.
struct Divisor {
  const void* at;
  const u8* next;
};
inline Divisor divisor_at(const u8* code, u8 rex, greg_t* registers) {
  static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  const auto value = [=](int number, int more) { return (i64)registers[order[number | (rex & more ? 8 : 0)]]; };
  const auto read = [&code](usize bytes) {
    i32 found = 0;
    if (bytes == 1) found = (signed char)*code;
    else __builtin_memcpy(&found, code, bytes);
    code += bytes;
    return (i64)found;
  };
  const u8 mode = *code >> 6, rm = *code & 7;
  code++;
  if (mode == 3) return {&registers[order[rm | (rex & 1 ? 8 : 0)]], code};
  i64 address = 0;
  bool from_here = false;
  int base = rm;
  if (rm == 4) {
    const u8 sib = *code++;
    base = sib & 7;
    if ((sib >> 3 & 7) != 4 || rex & 2) address = value(sib >> 3 & 7, 2) << (sib >> 6);
  }
  if (base == 5 && !mode) {
    address += read(4);
    from_here = rm == 5;
  } else {
    address += value(base, 1);
    if (mode) address += read(mode == 1 ? 1 : 4);
  }
  return {(const void*)(address + (from_here ? (i64)code : 0)), code};
}

// Does what a GPU does, and goes on behind the instruction; false where it is no such division.
inline bool pass_division(greg_t* registers) {
  const u8* code = (const u8*)registers[REG_RIP];
  usize bytes = 4;
  u8 rex = 0;
  if (*code == 0x66) bytes = 2, code++;
  if ((*code & 0xf0) == 0x40) rex = *code++;
  if (rex & 8) bytes = 8;
  if (*code != 0xf7 || (code[1] >> 3 & 7) < 6) return false;
  const bool is_signed = (code[1] >> 3 & 7) == 7;
  const Divisor divisor = divisor_at(code + 1, rex, registers);
  u64 by = 0, low = 0, quotient = ~(u64)0;
  __builtin_memcpy(&by, divisor.at, bytes);
  __builtin_memcpy(&low, &registers[REG_RAX], bytes);
  u64 rest = low;
  if (by && !is_signed) return false;
  if (by) quotient = low, rest = 0;
  if (bytes > 2) registers[REG_RAX] = registers[REG_RDX] = 0;
  __builtin_memcpy(&registers[REG_RAX], &quotient, bytes);
  __builtin_memcpy(&registers[REG_RDX], &rest, bytes);
  registers[REG_RIP] = (greg_t)divisor.next;
  return true;
}

inline struct sigaction before_divisions;
inline void stopped_at(int number, siginfo_t* info, void* context) {
  if (current && pass_division(((ucontext_t*)context)->uc_mcontext.gregs)) return;
  if (before_divisions.sa_flags & SA_SIGINFO) return before_divisions.sa_sigaction(number, info, context);
  const auto handler = before_divisions.sa_handler;
  if (handler != SIG_DFL && handler != SIG_IGN) return handler(number);
  sigaction(SIGFPE, &before_divisions, nullptr);  // it happens again, and is what it was
}
inline void watch_divisions() {
  struct sigaction now;
  if (sigaction(SIGFPE, nullptr, &now) || ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == stopped_at)) return;
  before_divisions = now;
  struct sigaction ours = {};
  ours.sa_sigaction = stopped_at;
  ours.sa_flags = SA_SIGINFO;
  sigaction(SIGFPE, &ours, nullptr);
}
// Of the thread that runs blocks: workers of a pool take no signals otherwise.
inline void take_divisions() {
  static __thread bool done;
  if (done) return;
  done = true;
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGFPE);
  sigprocmask(SIG_UNBLOCK, &one, nullptr);
}

}  // namespace km_emu
#else
namespace km_emu {
inline void watch_divisions() {}
inline void take_divisions() {}
}  // namespace km_emu
#endif
