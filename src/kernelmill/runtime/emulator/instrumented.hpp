// instrumented.hpp - the functions that g++ calls at each access under -fsanitize=thread, bounds and alignment. No library
// of a compiler is linked: these are all there are.
#pragma once
#include "scheduler.hpp"

#define KM_EMU_HOOK extern "C" __attribute__((visibility("default")))

#define KM_EMU_PLAIN(n)                                                                                                        \
  KM_EMU_HOOK void __tsan_read##n(void* p) { checks::access_shortly<n, checks::reading>(p, KM_EMU_CALLER); }                   \
  KM_EMU_HOOK void __tsan_write##n(void* p) { checks::access_shortly<n, checks::writing>(p, KM_EMU_CALLER); }                  \
  KM_EMU_HOOK void __tsan_unaligned_read##n(void* p) { checks::access(p, n, checks::reading, KM_EMU_CALLER); }                 \
  KM_EMU_HOOK void __tsan_unaligned_write##n(void* p) { checks::access(p, n, checks::writing, KM_EMU_CALLER); }                \
  KM_EMU_HOOK void __tsan_volatile_read##n(void* p) {                                                                          \
    if (!checks::self) return;                                                                                                 \
    poll_from(p, KM_EMU_CALLER);                                                                                               \
    checks::access(p, n, checks::atomically, KM_EMU_CALLER);                                                                   \
    checks::synchronise(p, true, false, false, false);                                                                         \
  }                                                                                                                            \
  KM_EMU_HOOK void __tsan_volatile_write##n(void* p) {                                                                         \
    if (!checks::self) return;                                                                                                 \
    checks::access(p, n, checks::writing | checks::atomically, KM_EMU_CALLER);                                                 \
    checks::synchronise(p, false, true, false, false);                                                                         \
  }
KM_EMU_PLAIN(1)
KM_EMU_PLAIN(2)
KM_EMU_PLAIN(4)
KM_EMU_PLAIN(8)
KM_EMU_PLAIN(16)
#undef KM_EMU_PLAIN
KM_EMU_HOOK void __tsan_read_range(void* p, long n) { checks::access_range(p, (usize)n, checks::reading, KM_EMU_CALLER); }
KM_EMU_HOOK void __tsan_write_range(void* p, long n) { checks::access_range(p, (usize)n, checks::writing, KM_EMU_CALLER); }
KM_EMU_HOOK void __tsan_init() {}
KM_EMU_HOOK void __tsan_func_entry(void*) {}
KM_EMU_HOOK void __tsan_func_exit() {}
KM_EMU_HOOK void __tsan_vptr_update(void** p, void*) { checks::access(p, 8, checks::writing, KM_EMU_CALLER); }
KM_EMU_HOOK void __tsan_vptr_read(void** p) { checks::access(p, 8, checks::reading, KM_EMU_CALLER); }
KM_EMU_HOOK void __tsan_atomic_thread_fence(int) { checks::fence(); }
KM_EMU_HOOK void __tsan_atomic_signal_fence(int) {}

// The C library's functions on memory, as the linker names them for us. What they read may have holes.
KM_EMU_HOOK void* __wrap_memcpy(void* to, const void* from, usize n) {
  checks::moved(to, from, n, KM_EMU_CALLER);
  return __builtin_memcpy(to, from, n);
}
KM_EMU_HOOK void* __wrap_memmove(void* to, const void* from, usize n) {
  checks::moved(to, from, n, KM_EMU_CALLER);
  return __builtin_memmove(to, from, n);
}
KM_EMU_HOOK void* __wrap_memset(void* to, int value, usize n) {
  if (checks::self) checks::access_range(to, n, checks::writing, KM_EMU_CALLER);
  return __builtin_memset(to, value, n);
}

// Memory that a kernel asks for is an array as others are.
namespace km_emu {
inline void* asked_for(usize n, const char* name) {
  void* made = calloc(1, n);
  if (checks::self && made) checks::allocated(made, n, name);
  return made;
}
inline void given_back(void* at) {
  if (checks::self && at) checks::freed(at);
  free(at);
}
}  // namespace km_emu
KM_EMU_HOOK void* __wrap_malloc(usize n) { return asked_for(n, "memory of malloc"); }
KM_EMU_HOOK void __wrap_free(void* at) { given_back(at); }
KM_EMU_HOOK void* __wrap__Znwm(usize n) { return asked_for(n, "memory of new"); }
KM_EMU_HOOK void* __wrap__Znam(usize n) { return asked_for(n, "memory of new"); }
KM_EMU_HOOK void __wrap__ZdlPv(void* at) { given_back(at); }
KM_EMU_HOOK void __wrap__ZdaPv(void* at) { given_back(at); }
KM_EMU_HOOK void __wrap__ZdlPvm(void* at, usize) { given_back(at); }
KM_EMU_HOOK void __wrap__ZdaPvm(void* at, usize) { given_back(at); }

// ---- atomics: the orders are those of C++, 2 and up acquire, 3 and up release ---------------------------------------

namespace km_emu {

inline bool acquires(int order) { return order == __ATOMIC_ACQUIRE || order == __ATOMIC_CONSUME || order >= __ATOMIC_ACQ_REL; }
inline bool releases(int order) { return order >= __ATOMIC_RELEASE; }

template <class T, class F>
T changed(volatile T* at, int order, const void* caller, F f) {
  if (checks::self) checks::access((void*)at, sizeof(T), checks::writing | checks::atomically | checks::updating, caller);
  const T old = *at, made = f(old);
  *at = made;
  if (!checks::self) return old;
  if (made == old) checks::writes--;
  checks::synchronise((void*)at, true, true, acquires(order), releases(order));
  return old;
}
template <class T>
bool exchanged_if(volatile T* at, T* expected, T value, int order, const void* caller) {
  const T old = *at;
  const bool done = old == *expected;
  if (checks::self) {
    checks::access((void*)at, sizeof(T), checks::atomically, caller);
    if (done) checks::access((void*)at, sizeof(T), checks::writing | checks::atomically, caller);
    if (done && old == value) checks::writes--;
  }
  if (done) *at = value;
  else *expected = old;
  if (checks::self) checks::synchronise((void*)at, true, done, acquires(order), done && releases(order));
  return done;
}

}  // namespace km_emu

#define KM_EMU_CHANGE(N, T, name, expression)                                                      \
  KM_EMU_HOOK T __tsan_atomic##N##_##name(volatile T* p, T v, int order) {                         \
    return changed(p, order, KM_EMU_CALLER, [=](T old) { return (void)old, (T)(expression); });    \
  }
#define KM_EMU_ATOMICS(N, T)                                                                       \
  KM_EMU_HOOK T __tsan_atomic##N##_load(const volatile T* p, int order) {                          \
    if (checks::self) {                                                                            \
      checks::access((void*)p, N / 8, checks::atomically, KM_EMU_CALLER);                          \
      checks::synchronise((void*)p, true, false, acquires(order), false);                          \
    }                                                                                              \
    return *p;                                                                                     \
  }                                                                                                \
  KM_EMU_HOOK void __tsan_atomic##N##_store(volatile T* p, T v, int order) {                       \
    if (checks::self) {                                                                            \
      checks::access((void*)p, N / 8, checks::writing | checks::atomically, KM_EMU_CALLER);        \
      checks::synchronise((void*)p, false, true, false, releases(order));                          \
    }                                                                                              \
    *p = v;                                                                                        \
  }                                                                                                \
  KM_EMU_CHANGE(N, T, exchange, v)                                                                 \
  KM_EMU_CHANGE(N, T, fetch_add, old + v)                                                          \
  KM_EMU_CHANGE(N, T, fetch_sub, old - v)                                                          \
  KM_EMU_CHANGE(N, T, fetch_and, old& v)                                                           \
  KM_EMU_CHANGE(N, T, fetch_or, old | v)                                                           \
  KM_EMU_CHANGE(N, T, fetch_xor, old ^ v)                                                          \
  KM_EMU_HOOK int __tsan_atomic##N##_compare_exchange_strong(volatile T* p, T* e, T v, int order, int) { \
    return exchanged_if(p, e, v, order, KM_EMU_CALLER);                                            \
  }                                                                                                \
  KM_EMU_HOOK int __tsan_atomic##N##_compare_exchange_weak(volatile T* p, T* e, T v, int order, int) { \
    return exchanged_if(p, e, v, order, KM_EMU_CALLER);                                            \
  }
KM_EMU_ATOMICS(8, u8)
KM_EMU_ATOMICS(16, u16)
KM_EMU_ATOMICS(32, u32)
KM_EMU_ATOMICS(64, u64)
#undef KM_EMU_ATOMICS
#undef KM_EMU_CHANGE

// ---- bounds and alignment: the records are those of the compiler ----------------------------------------------------

namespace km_emu {

struct SourcePlace { const char* file; u32 line, column; };
struct TypeName { u16 kind, info; char name[1]; };
struct BoundsRecord { SourcePlace place; TypeName *array, *index; };
struct AlignmentRecord { SourcePlace place; TypeName* type; u8 log_alignment, kind; };

inline void out_of_bounds(const BoundsRecord* record, u64 index, const void* caller) {
  if (!checks::self) return;
  const int bits = 1 << (record->index->info >> 1);
  const long value = (record->index->info & 1) && bits == 32 ? (long)(int)index : (long)index;
  char text[300];
  snprintf(text, sizeof text, "index %ld of an array of type %s", value, record->array->name);
  checks::write_line("out of bounds", checks::offset_of(caller), "", value, 1, 0, checks::Other(), text);
  fail(misused, nullptr, "out of bounds: %s", text);
}
inline void misaligned(const AlignmentRecord* record, u64 address, const void* caller) {
  if (!checks::self || !address) return;
  const u32 wanted = 1u << record->log_alignment;
  char text[300];
  snprintf(text, sizeof text, "type %s is at an address that is %u modulo %u", record->type->name,
           (u32)(address & (wanted - 1)), wanted);
  checks::Region* found = checks::region_at(*checks::self, (char*)address);
  if (found) checks::end_at("misaligned access", *found, (char*)address, wanted, caller, text);
}

}  // namespace km_emu

KM_EMU_HOOK void __ubsan_handle_out_of_bounds(BoundsRecord* d, unsigned long i) { out_of_bounds(d, i, KM_EMU_CALLER); }
KM_EMU_HOOK void __ubsan_handle_out_of_bounds_abort(BoundsRecord* d, unsigned long i) { out_of_bounds(d, i, KM_EMU_CALLER); }
KM_EMU_HOOK void __ubsan_handle_type_mismatch_v1(AlignmentRecord* d, unsigned long a) { misaligned(d, a, KM_EMU_CALLER); }
KM_EMU_HOOK void __ubsan_handle_type_mismatch_v1_abort(AlignmentRecord* d, unsigned long a) { misaligned(d, a, KM_EMU_CALLER); }

// ---- what the process that holds the kernel tells before it launches ------------------------------------------------

KM_EMU_HOOK void km_emu_check_output(const char* path, int strict, int initcheck) {
  checks::output = fopen(path, "w");
  checks::strict = strict != 0;
  checks::initcheck = initcheck;
}
// Makes memory for records of so many bytes of arrays before a launch asks for it.
KM_EMU_HOOK void km_emu_check_soon(u64 bytes) { checks::make_pages_ready(bytes / 4 * sizeof(checks::Brief)); }
KM_EMU_HOOK void km_emu_check_symbol(int shared, u64 at, u64 bytes, const char* name) {
  (shared ? checks::arrays.shared_symbols : checks::arrays.module_symbols).push_back({at, bytes, name});
}
KM_EMU_HOOK void km_emu_check_array(void* at, u64 bytes, const char* name) {
  checks::arrays.add((char*)at, bytes, name, false);
}

#include <link.h>

namespace km_emu::checks {

inline void find_module(const void* code) {
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* given) {
        bool inside = false;
        for (int i = 0; i < info->dlpi_phnum; i++) {
          const auto& part = info->dlpi_phdr[i];
          inside |= part.p_type == PT_LOAD && (usize)given - (info->dlpi_addr + part.p_vaddr) < part.p_memsz;
        }
        if (!inside) return 0;
        module_low = (char*)info->dlpi_addr;
        char* constants = module_low;  // tables of the compiler, which are protected once the module is loaded
        for (int i = 0; i < info->dlpi_phnum; i++)
          if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO)
            constants = module_low + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
        for (int i = 0; i < info->dlpi_phnum; i++) {
          const auto& part = info->dlpi_phdr[i];
          if (part.p_type != PT_LOAD) continue;
          char* low = module_low + part.p_vaddr;
          if (low + part.p_memsz > module_high) module_high = low + part.p_memsz;
          if (!(part.p_flags & PF_W)) continue;
          Region* made = new Region;
          char* high = low + part.p_memsz;
          if (low < constants && constants < high) low = constants;
          made->cover(low, (usize)(high - low), "memory of the module", module_memory, false);
          arrays.module_parts.push_back(made);
        }
        return 1;
      },
      (void*)code);
}

}  // namespace km_emu::checks
