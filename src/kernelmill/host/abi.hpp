// abi.hpp - what a compiled host kernel is handed: one call record, the same for every operator; no
// loops.
#pragma once
#include "base.hpp"

namespace km {

typedef void (*task_fn)(void* context, i64 begin, i64 end, int worker);

// What the process lends to a kernel.  `parallel_for` may run tasks in any order on at most
// `max_threads` threads.
struct Runtime {
  void (*parallel_for)(i64 n_tasks, int max_threads, task_fn task, void* context);
  int threads;
  i64 nontemporal_bytes;
};

struct Operand {
  char* data;
  const i64* strides;  // bytes, one per dimension of Call::shape
};

struct Call {
  const Runtime* runtime;
  const i64* shape;  // outermost first
  int ndim;
  int threads;              // 1: run in the calling thread, the pool is not touched
  const Operand* operands;  // inputs, then outputs
  const void* captures;     // a C struct of the captured scalars
  void* workspace;
  i64 flags;
};

enum : i64 { flag_stream = 1 };  // write outputs past the caches

constexpr int max_dims = 8;

// Runs body(begin, end) over [0, tasks): inline for one thread, else on the pool.
template <class Body> KM_INL void for_tasks(const Call* call, i64 tasks, Body& body) {
  if (call->threads <= 1 || tasks <= 1) {
    body(i64(0), tasks);
    return;
  }
  call->runtime->parallel_for(
      tasks, call->threads,
      [](void* context, i64 begin, i64 end, int) { (*(Body*)context)(begin, end); }, &body);
}

}  // namespace km
