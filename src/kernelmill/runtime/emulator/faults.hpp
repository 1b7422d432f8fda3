// faults.hpp - what went wrong in a launch: the first fault is kept with its place, and ends the launch.
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "state.hpp"

#ifdef KM_EMU_SANITIZER
#include "sanitizer.hpp"
#else
#include "unchecked.hpp"
#endif

namespace km_emu {

[[noreturn]] inline void abandon();

[[noreturn]] inline void not_on_device() {
  fprintf(stderr, "kernelmill emulator: a function for devices was called on the host\n");
  abort();
}

inline void record(Launch* launch, i32 status, const char* text) {
  i32 none = fine;
  if (!__atomic_compare_exchange_n(&launch->status, &none, -1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return;
  snprintf(launch->message, sizeof launch->message, "%s", text);
  __atomic_store_n(&launch->status, status, __ATOMIC_SEQ_CST);
}

[[noreturn]] inline void fail(i32 status, const void* caller, const char* format, ...) {
  char text[1600], whole[1800];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  snprintf(whole, sizeof whole, "%s in block (%u, %u, %u), thread (%u, %u, %u)", text, blockIdx.x, blockIdx.y,
           blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
  checks::report_failure(status, caller, text);
  record(current->launch, status, whole);
  abandon();
}

inline double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

}  // namespace km_emu
