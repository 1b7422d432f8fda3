// Kernels that copy beside their threads: right ones, and ones with a planted fault, whose name marks the lines that a report
// may name. Whatever is not marked gives no report.
typedef unsigned int u32;
typedef unsigned long long u64;
#define KERNEL extern "C" __global__
#define AT(p) ((u32)__cvta_generic_to_shared(p))
#define MAKE(bar, n) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(AT(bar)), "r"(n) : "memory")
#define MADE() asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
#define ARRIVE(bar) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(AT(bar)) : "memory")
#define EXPECT(bar, bytes) \
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(AT(bar)), "r"(bytes) : "memory")
#define AWAIT(bar, parity)                                                                                        \
  asm volatile(                                                                                                   \
      "{ .reg .pred p; W_%=: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D_%=; bra W_%=; D_%=: }" \
      ::"r"(AT(bar)), "r"(parity) : "memory")
#define LOAD(to, from, bytes, bar)                                                                              \
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"( \
                   AT(to)), "l"(from), "r"(bytes), "r"(AT(bar)) : "memory")
#define STORE(to, from, bytes) \
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(AT(from)), "r"(bytes) : "memory")
#define COMMIT() asm volatile("cp.async.bulk.commit_group;" ::: "memory")
#define READ(n) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(n) : "memory")
#define STORED(n) asm volatile("cp.async.bulk.wait_group %0;" ::"n"(n) : "memory")
#define SHOWN() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define SHOWN_ALL() asm volatile("fence.proxy.async;" ::: "memory")
#define COPY(to, from) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(AT(to)), "l"(from) : "memory")
#define GROUP() asm volatile("cp.async.commit_group;" ::: "memory")
#define GROUPS(n) asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory")

// ---- shared memory that a bulk store reads
KERNEL void stores(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  s[threadIdx.x] = 2 * x[threadIdx.x];
  SHOWN();
  __syncthreads();
  if (threadIdx.x == 0) {
    STORE(y, s, 256);
    COMMIT();
    STORED(0);
  }
}
KERNEL void stores_fenced_by_one(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  s[threadIdx.x] = 2 * x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    SHOWN_ALL();
    STORE(y, s, 256);
    COMMIT();
    READ(0);
  }
  __syncthreads();
  s[threadIdx.x] = 0;
}
KERNEL void stores_without_fence(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  s[threadIdx.x] = 2 * x[threadIdx.x];  //@stores_without_fence
  __syncthreads();
  if (threadIdx.x == 0) {
    STORE(y, s, 256);  //@stores_without_fence
    COMMIT();
    STORED(0);
  }
}
KERNEL void fence_before_the_write(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  SHOWN();
  s[threadIdx.x] = 2 * x[threadIdx.x];  //@fence_before_the_write
  __syncthreads();
  if (threadIdx.x == 0) {
    STORE(y, s, 256);  //@fence_before_the_write
    COMMIT();
    STORED(0);
  }
}
KERNEL void fence_of_one_warp(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  s[threadIdx.x] = 2 * x[threadIdx.x];  //@fence_of_one_warp
  if (threadIdx.x < 32) SHOWN();
  __syncthreads();
  if (threadIdx.x == 0) {
    STORE(y, s, 256);  //@fence_of_one_warp
    COMMIT();
    STORED(0);
  }
}
KERNEL void fence_without_barrier(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  s[threadIdx.x] = 2 * x[threadIdx.x];  //@fence_without_barrier
  SHOWN();
  __syncwarp();
  if (threadIdx.x == 63) {
    STORE(y, s, 256);  //@fence_without_barrier
    COMMIT();
    STORED(0);
  }
}
KERNEL void overwritten_too_early(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  s[threadIdx.x] = x[threadIdx.x];
  SHOWN();
  __syncthreads();
  if (threadIdx.x == 0) {
    STORE(y, s, 256);  //@overwritten_too_early
    COMMIT();
    s[5] = 1;  //@overwritten_too_early
    READ(0);
  }
}
KERNEL void two_groups(const int* x, int* y) {
  __shared__ __align__(16) int s[2][64];
  for (int r = 0; r < 4; r++) {
    if (threadIdx.x == 0) READ(1);
    __syncthreads();
    s[r & 1][threadIdx.x] = x[64 * r + threadIdx.x];
    SHOWN();
    __syncthreads();
    if (threadIdx.x == 0) {
      STORE(y + 64 * r, s[r & 1], 256);
      COMMIT();
    }
  }
  if (threadIdx.x == 0) STORED(0);
}
KERNEL void a_group_too_many(const int* x, int* y) {
  __shared__ __align__(16) int s[2][64];
  for (int r = 0; r < 4; r++) {
    if (threadIdx.x == 0) READ(2);
    __syncthreads();
    s[r & 1][threadIdx.x] = x[64 * r + threadIdx.x];  //@a_group_too_many
    SHOWN();
    __syncthreads();
    if (threadIdx.x == 0) {
      STORE(y + 64 * r, s[r & 1], 256);  //@a_group_too_many
      COMMIT();
    }
  }
  if (threadIdx.x == 0) STORED(0);
}
KERNEL void read_is_not_written(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  s[threadIdx.x] = x[threadIdx.x];
  SHOWN();
  __syncthreads();
  if (threadIdx.x == 0) {
    STORE(y, s, 256);  //@read_is_not_written
    COMMIT();
    READ(0);
    y[64] = y[9];  //@read_is_not_written
  }
}

// ---- shared memory that a bulk load fills
KERNEL void loads(const int* x, int* y, int rounds) {
  __shared__ __align__(16) int s[2][64];
  __shared__ u64 full[2], empty[2];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) MAKE(full + i, 1), MAKE(empty + i, 64);
    MADE();
  }
  __syncthreads();
  int sum = 0;
  for (int r = 0; r < rounds; r++) {
    const int i = r & 1;
    if (threadIdx.x == 0) {
      if (r >= 2) AWAIT(empty + i, (r / 2 + 1) & 1);
      EXPECT(full + i, 256);
      LOAD(s[i], x + 64 * r, 256, full + i);
    }
    AWAIT(full + i, (r / 2) & 1);
    sum += s[i][63 - threadIdx.x];
    ARRIVE(empty + i);
  }
  y[threadIdx.x] = sum;
}
KERNEL void reused_too_early(const int* x, int* y, int rounds) {
  __shared__ __align__(16) int s[64];
  __shared__ u64 full[4];
  if (threadIdx.x == 0) {
    for (int r = 0; r < rounds; r++) MAKE(full + r, 1);
    MADE();
  }
  __syncthreads();
  int sum = 0;
  for (int r = 0; r < rounds; r++) {
    if (threadIdx.x == 0) {
      EXPECT(full + r, 256);
      LOAD(s, x + 64 * r, 256, full + r);  //@reused_too_early
    }
    AWAIT(full + r, 0);
    sum += s[63 - threadIdx.x];  //@reused_too_early
  }
  y[threadIdx.x] = sum;
}
KERNEL void read_before_the_wait(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  __shared__ u64 full;
  if (threadIdx.x == 0) {
    MAKE(&full, 1);
    MADE();
    EXPECT(&full, 256);
    LOAD(s, x, 256, &full);  //@read_before_the_wait
    y[0] = s[3];  //@read_before_the_wait
    AWAIT(&full, 0);
  }
}
KERNEL void waits_for_the_other(const int* x, int* y) {
  __shared__ __align__(16) int s[2][64];
  __shared__ u64 full[2];
  if (threadIdx.x == 0) {
    MAKE(full, 1);
    MAKE(full + 1, 1);
    MADE();
  }
  __syncthreads();
  if (threadIdx.x == 0)
    for (int i = 0; i < 2; i++) {
      EXPECT(full + i, 256);
      LOAD(s[i], x + 64 * i, 256, full + i);  //@waits_for_the_other
    }
  AWAIT(full + 1, 0);
  y[threadIdx.x] = s[0][threadIdx.x];  //@waits_for_the_other
}
KERNEL void load_over_writes(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  __shared__ u64 full;
  s[threadIdx.x] = 0;  //@load_over_writes
  if (threadIdx.x == 0) {
    MAKE(&full, 1);
    MADE();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    EXPECT(&full, 128);
    LOAD(s, x, 128, &full);  //@load_over_writes
  }
  AWAIT(&full, 0);
  y[threadIdx.x] = s[threadIdx.x];
}
KERNEL void load_after_fence(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  __shared__ u64 full;
  s[threadIdx.x] = 0;
  if (threadIdx.x == 0) MAKE(&full, 1);
  SHOWN();
  __syncthreads();
  if (threadIdx.x == 0) {
    EXPECT(&full, 128);
    LOAD(s, x, 128, &full);
  }
  AWAIT(&full, 0);
  y[threadIdx.x] = s[threadIdx.x];
}
KERNEL void load_of_what_was_written(int* x, int* y) {
  __shared__ __align__(16) int s[64];
  __shared__ u64 full;
  x[threadIdx.x] += 1;  //@load_of_what_was_written
  if (threadIdx.x == 0) {
    MAKE(&full, 1);
    MADE();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    EXPECT(&full, 256);
    LOAD(s, x, 256, &full);  //@load_of_what_was_written
  }
  AWAIT(&full, 0);
  y[threadIdx.x] = s[threadIdx.x];
}

// ---- mbarriers
KERNEL void made_without_fence(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  __shared__ u64 full;
  if (threadIdx.x == 0) MAKE(&full, 1);  //@made_without_fence
  __syncthreads();
  if (threadIdx.x == 0) {
    EXPECT(&full, 256);
    LOAD(s, x, 256, &full);  //@made_without_fence
  }
  AWAIT(&full, 0);
  y[threadIdx.x] = s[threadIdx.x];
}
KERNEL void made_without_barrier(const int* x, int* y) {
  __shared__ __align__(16) int s[64];
  __shared__ u64 full;
  if (threadIdx.x == 0) {
    MAKE(&full, 1);  //@made_without_barrier
    MADE();
    EXPECT(&full, 256);
    LOAD(s, x, 256, &full);
  }
  __syncwarp();
  AWAIT(&full, 0);  //@made_without_barrier
  y[threadIdx.x] = s[threadIdx.x];
}

// ---- copies of single threads
KERNEL void small_copies(const int* x, int* y) {
  __shared__ int s[3][64];
  for (int r = 0; r < 2; r++) {
    COPY(&s[r][threadIdx.x], x + 64 * r + threadIdx.x);
    GROUP();
  }
  int sum = 0;
  for (int r = 0; r < 4; r++) {
    if (r < 2) COPY(&s[(r + 2) % 3][threadIdx.x], x + 64 * (r + 2) + threadIdx.x);
    GROUP();
    GROUPS(2);
    __syncthreads();
    sum += s[r % 3][63 - threadIdx.x];
    __syncthreads();
  }
  y[threadIdx.x] = sum;
}
KERNEL void small_copies_without_wait(const int* x, int* y) {
  __shared__ int s[64];
  COPY(&s[threadIdx.x], x + threadIdx.x);  //@small_copies_without_wait
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];  //@small_copies_without_wait
}
KERNEL void waits_for_the_group_before(const int* x, int* y) {
  __shared__ int s[2][64];
  for (int r = 0; r < 2; r++) {
    COPY(&s[r][threadIdx.x], x + 64 * r + threadIdx.x);  //@waits_for_the_group_before
    GROUP();
  }
  GROUPS(1);
  __syncthreads();
  y[threadIdx.x] = s[1][63 - threadIdx.x];  //@waits_for_the_group_before
}
KERNEL void own_wait_only(const int* x, int* y) {
  __shared__ int s[64];
  COPY(&s[threadIdx.x], x + threadIdx.x);  //@own_wait_only
  GROUP();
  GROUPS(0);
  y[threadIdx.x] = s[63 - threadIdx.x];  //@own_wait_only
}
