/* Thread pool of the CPU back end: its functions. Kernels reach it through `Runtime` in abi.hpp. */
#ifndef KM_POOL_H
#define KM_POOL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KM_POOL_API __attribute__((visibility("default")))
#define KM_POOL_MAX_THREADS 512
#define KM_POOL_SPIN_US 200

/* Tasks begin <= i < end belong to this call; in a region each thread has its own `worker`, which
 * is >= 0 and < max_threads. */
typedef void (*km_task)(void *ctx, int64_t begin, int64_t end, int worker);

/* Run tasks 0 <= i < n_tasks on at most max_threads threads (all when <= 0); the caller is worker
 * 0. Returns when every task is done. From inside a task, and while another thread has the pool,
 * all tasks run in the caller. */
KM_POOL_API void km_parallel_for(int64_t n_tasks, int max_threads, km_task task, void *ctx);

/* Set the number of threads, the caller included; n <= 0 follows the affinity mask, spin_us < 0 is
 * the default. The first region that wants threads creates them. Returns the number set; from
 * inside a task nothing changes. */
KM_POOL_API int km_pool_start(int n, int spin_us);

/* The number of threads set; starts in the n <= 0 way when nobody has. */
KM_POOL_API int km_pool_threads(void);

/* A region that does nothing, to measure the pool itself. */
KM_POOL_API void km_pool_nop(int64_t n_tasks, int max_threads);

#ifdef __cplusplus
}
#endif
#endif
