// Kernels with one planted fault each. A comment with the kernel's name marks each line that a report may name.
#include <cooperative_groups.h>

typedef unsigned int u32;
typedef unsigned long long u64;
#define FULL 0xffffffffu
#define KERNEL extern "C" __global__

// ---- out of bounds
KERNEL void past_the_end(float* x) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i + 1] = 1;  //@past_the_end
}
KERNEL void before_the_start(const float* x, float* y) {
  y[threadIdx.x] = x[(int)threadIdx.x - 1];  //@before_the_start
}
KERNEL void wrong_stride(int* grid, int width) {
  const int row = threadIdx.y, column = threadIdx.x;
  grid[row * (width + 1) + column] = 1;  //@wrong_stride
}
KERNEL void far_away(int* x) {
  __shared__ int n;
  if (threadIdx.x == 0) n = 1 << 24;
  __syncthreads();
  x[n + threadIdx.x] = 1;  //@far_away
}
KERNEL void shared_index(float* x) {
  __shared__ float s[64];
  s[threadIdx.x] = 0;
  __syncthreads();
  x[threadIdx.x] = s[threadIdx.x + 1];  //@shared_index
}
KERNEL void shared_column(float* x) {
  __shared__ float tile[8][9];
  if (threadIdx.x < 8)
    for (int i = 0; i < 9; i++) tile[threadIdx.x][i] = i;
  __syncthreads();
  if (threadIdx.x < 8) x[threadIdx.x] = tile[threadIdx.x][threadIdx.x + 2];  //@shared_column
}
__device__ void put(float* at, float v) {
  *at = v;  //@shared_pointer
}
KERNEL void shared_pointer(float* x) {
  __shared__ float s[64];
  float* p = s;
  for (int i = 0; i < 4; i++) put(p + threadIdx.x + 2 * i, 1.0f);
  x[threadIdx.x] = p[0];
}
KERNEL void dynamic_shared(float* x) {
  extern __shared__ float d[];
  d[threadIdx.x] = x[threadIdx.x];  //@dynamic_shared
}
__device__ float table[16];
KERNEL void device_array(int by) {
  float* p = table;
  if (threadIdx.x == 3) p[13 + by] = 1;  //@device_array
}

// ---- uninitialised
KERNEL void half_filled(float* y) {
  __shared__ float s[64];
  if (threadIdx.x < 32) s[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x];  //@half_filled
}
KERNEL void never_cleared(int* y) {
  extern __shared__ int bins[];
  atomicAdd(&bins[threadIdx.x & 3], 1);  //@never_cleared
  __syncthreads();
  if (threadIdx.x < 4) y[threadIdx.x] = bins[threadIdx.x];
}
KERNEL void missing_halo(const float* x, float* y) {
  __shared__ float s[66];
  s[threadIdx.x + 1] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = s[threadIdx.x] + s[threadIdx.x + 2];  //@missing_halo
}

struct Numbered { double value; int at; };
KERNEL void member_left_out(Numbered* y) {
  __shared__ Numbered s[64];
  s[threadIdx.x].at = threadIdx.x;
  __syncthreads();
  y[threadIdx.x] = s[63 - threadIdx.x];  //@member_left_out
}

// ---- misaligned
KERNEL void vector_load(const float* x, float* y) {
  const float4 v = *(const float4*)(x + 1 + 4 * threadIdx.x);  //@vector_load
  y[threadIdx.x] = v.x;
}
KERNEL void wide_load(const unsigned char* x, u64* y) {
  y[threadIdx.x] = *(const u64*)(x + 4 + 8 * threadIdx.x);  //@wide_load
}
KERNEL void shared_vector(float* y) {
  __shared__ float4 s[17];
  float* p = (float*)s;
  for (int i = threadIdx.x; i < 68; i += 32) p[i] = i;
  __syncthreads();
  const float2 v = *(const float2*)(p + 2 * threadIdx.x + 1);  //@shared_vector
  y[threadIdx.x] = v.x;
}
KERNEL void between_two(const double* x, double* y) {
  const double2 v = ((const double2*)(x + 1))[threadIdx.x];  //@between_two
  y[threadIdx.x] = v.x + v.y;
}
struct Cell { float4 value; };
KERNEL void half_a_struct(const float* x, Cell* y) {
  __shared__ float4 s[33];
  Cell* cells = (Cell*)((float*)s + 2);
  cells[threadIdx.x] = *(const Cell*)(x + 4 * threadIdx.x);  //@half_a_struct
  y[threadIdx.x] = cells[threadIdx.x];
}

// ---- races
KERNEL void no_barrier(float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = threadIdx.x;  //@no_barrier
  y[threadIdx.x] = s[63 - threadIdx.x];  //@no_barrier
}
KERNEL void missing_in_loop(float* y) {
  __shared__ float s[128];
  const int t = threadIdx.x;
  s[t] = t;
  __syncthreads();
  for (int by = 64; by; by /= 2) {
    if (t < by) s[t] += s[t + by];  //@missing_in_loop
    if (by > 32) __syncthreads();
  }
  if (t == 0) y[0] = s[0];
}
KERNEL void second_barrier(const int* x, int* y, int n) {
  __shared__ int s;
  int sum = 0;
  for (int i = 0; i < n; i++) {
    if (threadIdx.x == i) s = x[i];  //@second_barrier
    __syncthreads();
    sum += s;  //@second_barrier
  }
  y[threadIdx.x] = sum;
}
KERNEL void no_syncwarp(int* y) {
  __shared__ int s[32];
  const int lane = threadIdx.x;
  s[lane] = lane;
  __syncwarp();
  const int v = s[31 - lane];  //@no_syncwarp
  s[lane] = v;  //@no_syncwarp
  y[lane] = v;
}
KERNEL void between_blocks(int* sum) {
  if (threadIdx.x == 0)
    sum[0] += blockIdx.x;  //@between_blocks
}
KERNEL void with_atomics(int* y) {
  if (threadIdx.x == 5) y[0] = 0;  //@with_atomics
  else atomicAdd(y, 1);  //@with_atomics
}
__device__ int box, flag;
KERNEL void no_fence(int* y) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    box = 42;  //@no_fence
    atomicExch(&flag, 1);
  } else {
    while (atomicAdd(&flag, 0) == 0) {}
    y[0] = box;  //@no_fence
  }
}
KERNEL void bytes(unsigned char* x) {
  x[threadIdx.x / 2] = (unsigned char)threadIdx.x;  //@bytes
}

// ---- barriers
KERNEL void two_barriers(float* y) {
  if (threadIdx.x < 16)
    __syncthreads();  //@two_barriers
  else
    __syncthreads();  //@two_barriers
  y[threadIdx.x] = 1;
}
KERNEL void in_a_branch(float* y) {
  __shared__ float s[64];
  s[threadIdx.x] = 1;
  if (threadIdx.x >= 32) {
    __syncthreads();  //@in_a_branch
    y[threadIdx.x] = s[63 - threadIdx.x];
  } else {
    y[threadIdx.x] = __shfl_sync(FULL, 1.0f, 0);
    __syncthreads();  //@in_a_branch
  }
}
KERNEL void uneven_loop(int* y) {
  for (int i = 0; i <= threadIdx.x / 32; i++) asm volatile("bar.sync 2, 64;" ::: "memory");  //@uneven_loop
  y[threadIdx.x] = 1;
}
KERNEL void barrier_and_warp(int* y) {
  if (threadIdx.x == 7) __syncthreads();  //@barrier_and_warp
  y[threadIdx.x] = (int)__ballot_sync(FULL, 1);  //@barrier_and_warp
}

// ---- masks
KERNEL void not_in_mask(u32* y) {
  y[threadIdx.x] = __ballot_sync(0xffffu, 1);  //@not_in_mask
}
KERNEL void different_masks(int* y) {
  const int lane = threadIdx.x;
  if (lane < 16) y[lane] = __shfl_sync(FULL, lane, 31);  //@different_masks
  else y[lane] = __shfl_sync(0xffff0000u, lane, 16);  //@different_masks
}
KERNEL void lane_takes_no_part(int* y) {
  if (threadIdx.x < 8) y[threadIdx.x] = __shfl_sync(0xffu, (int)threadIdx.x, 20);  //@lane_takes_no_part
}
KERNEL void half_a_warp_down(int* y) {
  if (threadIdx.x < 16) y[threadIdx.x] = __shfl_down_sync(0xffffu, (int)threadIdx.x, 16);  //@half_a_warp_down
}
KERNEL void other_operation(u32* y) {
  if (threadIdx.x & 1) y[threadIdx.x] = __ballot_sync(FULL, 1);  //@other_operation
  else y[threadIdx.x] = __reduce_add_sync(FULL, 1u);  //@other_operation
}

// ---- standstill
KERNEL void waits_for_nobody(int* flag_) {
  if (threadIdx.x == 0)
    while (atomicAdd(flag_, 0) == 0) {}  //@waits_for_nobody
}
KERNEL void volatile_wait(volatile int* flag_) {
  while (flag_[0] == 0) {}  //@volatile_wait
}
KERNEL void lock_in_warp(int* lock) {
  while (atomicCAS(lock, 0, 1) != 0) {}  //@lock_in_warp
  __syncwarp();  //@lock_in_warp
  atomicExch(lock, 0);
}
KERNEL void dead_mbarrier(int* y) {
  __shared__ u64 bar;
  const u32 at = (u32)__cvta_generic_to_shared(&bar);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(2) : "memory");
  __syncthreads();
  if (threadIdx.x == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
  asm volatile(  //@dead_mbarrier
      "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra done; bra again; done: }" ::"r"(at),
      "r"(0)
      : "memory");  //@dead_mbarrier
  y[threadIdx.x] = 1;
}
KERNEL void bytes_that_never_come(int* y) {
  __shared__ u64 bar;
  const u32 at = (u32)__cvta_generic_to_shared(&bar);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(1) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(64) : "memory");
  }
  __syncthreads();
  asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W; }" ::"r"(at), "r"(0) : "memory");  //@bytes_that_never_come
  y[threadIdx.x] = 1;
}
KERNEL void each_waits_for_the_other(int* y) {
  __shared__ u64 bar;
  const u32 at = (u32)__cvta_generic_to_shared(&bar);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(31) : "memory");
  __syncthreads();
  if (threadIdx.x == 0)
    asm volatile("{ .reg .pred p; W: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra W; }" ::"r"(at), "r"(0) : "memory");  //@each_waits_for_the_other
  __syncwarp();  //@each_waits_for_the_other
  if (threadIdx.x) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
  y[threadIdx.x] = 1;
}
KERNEL void some_blocks(int* y) {
  if (blockIdx.x == 1) return;
  if (threadIdx.x < 40) cooperative_groups::this_grid().sync();  //@some_blocks
  else __syncthreads();  //@some_blocks
  y[0] = 1;
}

// ---- the rest
KERNEL void trapped(int at) {
  if (threadIdx.x == at) __trap();  //@trapped
}
KERNEL void asserted(const int* x) {
  assert(x[threadIdx.x] >= 0);  //@asserted
}
KERNEL void crash(int* y) {
  void (*function)(int*) = (void (*)(int*))y[0];
  if (threadIdx.x == 3) function(y);  //@crash
}
