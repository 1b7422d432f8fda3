/* What a compiled host kernel is handed, for C: the records of abi.hpp, field for field. */
#ifndef KM_ABI_H
#define KM_ABI_H

#include "pool.h"

struct km_runtime {
    void (*parallel_for)(int64_t n_tasks, int max_threads, km_task task, void *ctx);
    int threads;
    int64_t nontemporal_bytes;
};

struct km_operand {
    char *data;
    const int64_t *strides;
};

struct km_call {
    const struct km_runtime *runtime;
    const int64_t *shape;
    int ndim;
    int threads;
    const struct km_operand *operands;
    const void *captures;
    void *workspace;
    int64_t flags;
};

typedef void (*km_kernel_fn)(const struct km_call *call);

#define KM_FLAG_STREAM 1

#endif
