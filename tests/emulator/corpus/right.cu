// Small kernels that are right: what they compute is compared with NumPy, and the sanitizer has nothing to say.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;
typedef unsigned int u32;
typedef unsigned long long u64;
#define FULL 0xffffffffu
#define KERNEL extern "C" __global__

// ---- shared memory and barriers
KERNEL void reverse_static(const int* x, int* y) {
  __shared__ int s[256];
  s[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * 256 + threadIdx.x] = s[255 - threadIdx.x];
}
KERNEL void reverse_dynamic(const int* x, int* y) {
  extern __shared__ __align__(16) int tile[];
  tile[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  y[blockIdx.x * blockDim.x + threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
KERNEL void tree_sum(const float* x, float* total) {
  __shared__ float s[128];
  const int t = threadIdx.x;
  s[t] = x[blockIdx.x * 128 + t];
  for (int by = 64; by > 0; by /= 2) {
    __syncthreads();
    if (t < by) s[t] += s[t + by];
  }
  if (t == 0) total[blockIdx.x] = s[0];
}
// Members are written one by one, so that the holes between them never are.
struct Numbered { double value; int at; };
struct Labelled { double value; int at; double weight; };
struct Short { short at; char sign; };
struct Triple { short at, twice; char sign; };
KERNEL void structs_with_holes(const int* x, Numbered* y, Labelled* z, Short* u, Triple* v, int* sum) {
  __shared__ Numbered s[64];
  __shared__ Labelled l[64];
  __shared__ Short a[64];
  __shared__ Triple b[64];
  const int t = threadIdx.x, from = 63 - t;
  s[t].value = x[t], s[t].at = t;
  l[t].value = x[t], l[t].at = t, l[t].weight = 2;
  a[t].at = t, a[t].sign = 1;
  b[t].at = t, b[t].twice = 2 * t, b[t].sign = -1;
  __syncthreads();
  y[t] = s[from], z[t] = l[from], u[t] = a[from], v[t] = b[from];
  sum[t] = y[t].value + y[t].at + z[t].value * z[t].weight + z[t].at + u[t].at + u[t].sign + v[t].twice + v[t].sign;
}
// Structs of 16 bytes that lie at every 24th byte.
struct Weighed { Numbered at; double weight; };
struct Between { double before; Numbered at; };
KERNEL void structs_in_structs(const double* x, Weighed* y, Between* z, double* sum) {
  __shared__ Weighed s[64];
  __shared__ Between u[64];
  const int t = threadIdx.x, from = 63 - t;
  const Numbered mine = {x[t], t};
  s[t].at = mine, s[t].weight = 2;
  u[t].at = mine, u[t].before = 3;
  __syncthreads();
  y[t].at = s[from].at, y[t].weight = s[from].weight;
  z[t].at = u[from].at, z[t].before = u[from].before;
  const Numbered one = y[t].at, other = z[t].at;
  sum[t] = one.value * y[t].weight + one.at + other.value + z[t].before + other.at;
}
KERNEL void transpose(const float* x, float* y, int n) {
  __shared__ float tile[16][17];
  int i = blockIdx.x * 16 + threadIdx.x, j = blockIdx.y * 16 + threadIdx.y;
  if (i < n && j < n) tile[threadIdx.y][threadIdx.x] = x[j * n + i];
  __syncthreads();
  i = blockIdx.y * 16 + threadIdx.x, j = blockIdx.x * 16 + threadIdx.y;
  if (i < n && j < n) y[j * n + i] = tile[threadIdx.x][threadIdx.y];
}
KERNEL void barrier_forms(const int* x, int* out) {
  const int v = x[threadIdx.x];
  const int all = __syncthreads_and(v > 0), any = __syncthreads_or(v > 90), count = __syncthreads_count(v > 50);
  if (threadIdx.x == 0) out[0] = all, out[1] = any, out[2] = count;
}
KERNEL void early_exit(int* out, int n) {
  __shared__ int s[64];
  if ((int)threadIdx.x >= n) return;
  s[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = s[n - 1 - threadIdx.x];
}
KERNEL void odd_even_sort(int* x) {
  __shared__ int s[128];
  const int t = threadIdx.x;
  s[t] = x[t];
  for (int round = 0; round < 128; round++) {
    __syncthreads();
    const int a = 2 * t + (round & 1);
    if (a + 1 < 128 && s[a] > s[a + 1]) {
      const int kept = s[a];
      s[a] = s[a + 1];
      s[a + 1] = kept;
    }
  }
  __syncthreads();
  x[t] = s[t];
}
KERNEL void bitonic_sort(u32* x) {
  __shared__ u32 s[256];
  const u32 t = threadIdx.x;
  s[t] = x[t];
  __syncthreads();
  for (u32 k = 2; k <= 256; k *= 2)
    for (u32 j = k / 2; j > 0; j /= 2) {
      const u32 other = t ^ j;
      if (other > t && (s[t] > s[other]) == ((t & k) == 0)) {
        const u32 kept = s[t];
        s[t] = s[other];
        s[other] = kept;
      }
      __syncthreads();
    }
  x[t] = s[t];
}
KERNEL void scan_block(const int* x, int* y) {
  __shared__ int s[2][256];
  int in = 0;
  s[0][threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  for (int by = 1; by < 256; by *= 2) {
    s[1 - in][threadIdx.x] = s[in][threadIdx.x] + ((int)threadIdx.x >= by ? s[in][threadIdx.x - by] : 0);
    in = 1 - in;
    __syncthreads();
  }
  y[threadIdx.x] = s[in][threadIdx.x];
}

// ---- warps
KERNEL void shuffles(const int* x, int* out) {
  const int v = x[threadIdx.x], t = threadIdx.x;
  out[t] = __shfl_sync(FULL, v, (t + 5) & 31);
  out[64 + t] = __shfl_up_sync(FULL, v, 3);
  out[128 + t] = __shfl_down_sync(FULL, v, 7);
  out[192 + t] = __shfl_xor_sync(FULL, v, 9);
  out[256 + t] = __shfl_sync(FULL, v, 2, 8);
  out[320 + t] = __shfl_up_sync(FULL, v, 1, 4);
  out[384 + t] = __shfl_down_sync(FULL, v, 1, 16);
}
KERNEL void votes(const int* x, u32* out) {
  const int v = x[threadIdx.x];
  const u32 ballot = __ballot_sync(FULL, v & 1);
  const int any = __any_sync(FULL, v > 95), all = __all_sync(FULL, v >= 0);
  if ((threadIdx.x & 31) == 0) {
    u32* at = out + threadIdx.x / 32 * 3;
    at[0] = ballot, at[1] = any, at[2] = all;
  }
}
KERNEL void match_and_reduce(const int* x, u32* out) {
  const int v = x[threadIdx.x] & 3, t = threadIdx.x;
  int same;
  out[t] = __match_any_sync(FULL, v);
  out[32 + t] = __match_all_sync(FULL, 7, &same) + (u32)same;
  out[64 + t] = __reduce_add_sync(FULL, (u32)x[t]);
  out[96 + t] = (u32)__reduce_min_sync(FULL, x[t]);
  out[128 + t] = (u32)__reduce_max_sync(FULL, x[t]);
  out[160 + t] = __reduce_or_sync(FULL, (u32)x[t]);
}
KERNEL void divided_warp(const int* x, int* out) {
  const int t = threadIdx.x, lane = t & 31;
  if (lane < 12) out[t] = __shfl_sync(0xfffu, x[t], 11);
  else if (lane & 1) out[t] = __reduce_add_sync(0xaaaaa000u, x[t]);
  else out[t] = (int)__ballot_sync(0x55555000u, x[t] > 50);
}
KERNEL void partial_warp(const int* x, int* out) {
  out[threadIdx.x] = __shfl_xor_sync(threadIdx.x < 32 ? FULL : 0xffu, x[threadIdx.x], 1);
}
KERNEL void warp_sums(const float* x, float* out) {
  float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  for (int by = 16; by; by /= 2) v += __shfl_xor_sync(FULL, v, by);
  if ((threadIdx.x & 31) == 0) out[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = v;
}
KERNEL void warp_exchange(const int* x, int* out) {
  __shared__ int s[64];
  s[threadIdx.x] = x[threadIdx.x];
  __syncwarp();
  out[threadIdx.x] = s[threadIdx.x ^ 31];
}
KERNEL void wide_shuffle(const double* x, double* out) {
  out[threadIdx.x] = __shfl_up_sync(FULL, x[threadIdx.x], 1);
}

// ---- atomics
KERNEL void histogram(const int* x, int* bins, int n) {
  __shared__ int local[16];
  if (threadIdx.x < 16) local[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[x[i] & 15], 1);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
KERNEL void every_atomic(int* i, u32* u, u64* l, float* f, double* d) {
  const int t = blockIdx.x * blockDim.x + threadIdx.x;
  atomicAdd(i, 2), atomicSub(i + 1, 1), atomicMin(i + 2, -t), atomicMax(i + 3, t);
  atomicAnd(u, ~(1u << (t & 31))), atomicOr(u + 1, 1u << (t & 31)), atomicXor(u + 2, (u32)t);
  atomicInc(u + 3, 99), atomicDec(u + 4, 9), atomicExch(u + 5, 4u);
  atomicAdd(l, (u64)t << 20), atomicMax(l + 1, (u64)t << 33), atomicCAS(l + 2, 5ull, 6ull);
  atomicAdd(f, 0.5f), atomicExch(f + 1, 3.0f);
  atomicAdd(d, 0.25), atomicAdd_block(i + 4, 1), atomicAdd_system(i + 5, 1);
}
KERNEL void cas_loop(float* most, const float* x) {
  const float v = x[blockIdx.x * blockDim.x + threadIdx.x];
  int* word = (int*)most;
  int seen = *word, before;
  do {
    before = seen;
    seen = atomicCAS(word, before, __float_as_int(fmaxf(v, __int_as_float(before))));
  } while (seen != before);
}
KERNEL void last_block(const float* x, float* parts, u32* ticket, float* total) {
  __shared__ float s[64];
  __shared__ bool last;
  s[threadIdx.x] = x[blockIdx.x * 64 + threadIdx.x];
  for (int by = 32; by; by /= 2) {
    __syncthreads();
    if (threadIdx.x < by) s[threadIdx.x] += s[threadIdx.x + by];
  }
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = s[0];
    __threadfence();
    last = atomicAdd(ticket, 1u) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    float sum = 0;
    for (int b = 0; b < gridDim.x; b++) sum += __ldcg(parts + b);
    *total = sum;
  }
}
KERNEL void look_back(const int* x, int* y, int* state, u32* ticket) {
  __shared__ int tile, before;
  if (threadIdx.x == 0) tile = (int)atomicAdd(ticket, 1u);
  __syncthreads();
  int sum = x[tile * 32 + threadIdx.x];
  for (int by = 1; by < 32; by *= 2) {
    const int left = __shfl_up_sync(FULL, sum, by);
    if (threadIdx.x >= by) sum += left;
  }
  if (threadIdx.x == 31) {
    int prefix = 0;
    if (tile > 0)
      while ((prefix = __nv_atomic_load_n(state + tile - 1, __NV_ATOMIC_ACQUIRE, __NV_THREAD_SCOPE_DEVICE)) < 0) {}
    before = prefix;
    __nv_atomic_store_n(state + tile, prefix + sum, __NV_ATOMIC_RELEASE, __NV_THREAD_SCOPE_DEVICE);
  }
  __syncthreads();
  y[tile * 32 + threadIdx.x] = before + sum;
}
KERNEL void flag_in_block(int* out) {
  __shared__ int value;
  __shared__ u32 flag;
  if (threadIdx.x == 0) flag = 0;
  __syncthreads();
  if (threadIdx.x == 40) {
    value = 7;
    __threadfence_block();
    atomicExch(&flag, 1u);
  }
  if (threadIdx.x == 3) {
    while (atomicAdd(&flag, 0u) == 0) {}
    __threadfence_block();
    *out = value;
  }
}
KERNEL void spin_lock(int* lock, int* sum) {
  if (threadIdx.x == 0) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    *sum = *sum + (int)blockIdx.x;
    __threadfence();
    atomicExch(lock, 0);
  }
}

// ---- the grid
KERNEL void grid_barrier(int* x, int* y) {
  const cg::grid_group grid = cg::this_grid();
  const int i = (int)grid.thread_rank(), n = (int)grid.size();
  x[i] = i * i;
  grid.sync();
  y[i] = x[n - 1 - i];
  grid.sync();
  x[i] = y[(i + 1) % n];
}
KERNEL void grid_stride(const float* a, const float* b, float* c, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) c[i] = a[i] + 2 * b[i];
}
KERNEL void three_dimensions(int* out) {
  const dim3 g = gridDim, b = blockDim;
  const int block = blockIdx.x + g.x * (blockIdx.y + g.y * blockIdx.z);
  const int thread = threadIdx.x + b.x * (threadIdx.y + b.y * threadIdx.z);
  out[block * (b.x * b.y * b.z) + thread] = blockIdx.z * 100 + threadIdx.y * 10 + threadIdx.x;
}

// ---- groups
KERNEL void tiles(const int* x, int* out) {
  auto block = cg::this_thread_block();
  auto tile = cg::tiled_partition<8>(block);
  const int v = x[block.thread_rank()], t = threadIdx.x;
  out[t] = cg::reduce(tile, v, cg::plus<int>());
  out[64 + t] = tile.shfl(v, 3) + (int)tile.ballot(v & 1);
  out[128 + t] = cg::reduce(tile, v, cg::greater<int>()) * 10 + tile.meta_group_rank();
  auto group = cg::coalesced_threads();
  if (group.thread_rank() == 0) atomicAdd(out + 192, (int)group.size());
}
__device__ int sum_of(cg::thread_group group, int* shared, int v) {
  for (int by = group.size() / 2; by > 0; by /= 2) {
    shared[group.thread_rank()] = v;
    group.sync();
    if ((int)group.thread_rank() < by) v += shared[group.thread_rank() + by];
    group.sync();
  }
  return v;
}
KERNEL void any_group(const int* x, int* out) {
  __shared__ int s[64];
  auto block = cg::this_thread_block();
  const int v = x[threadIdx.x], whole = sum_of(block, s, v);
  if (threadIdx.x == 0) out[0] = whole;
  auto part = cg::tiled_partition(block, 16);
  const int some = sum_of(part, s + threadIdx.x / 16 * 16, v);
  if (part.thread_rank() == 0) out[1 + threadIdx.x / 16] = some;
}
KERNEL void partitions(const int* x, int* out) {
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  const int v = x[threadIdx.x], t = threadIdx.x;
  auto half = cg::binary_partition(warp, v & 1);
  out[t] = cg::reduce(half, v, cg::plus<int>());
  out[64 + t] = half.thread_rank() * 100 + half.size();
  auto alike = cg::labeled_partition(warp, v % 3);
  out[128 + t] = alike.shfl(v, 0) + (int)alike.ballot(v > 50);
}

// ---- types and functions
struct Pair { float key; int index; };
struct __align__(16) Quad { float v[4]; };
KERNEL void vectors(const float4* x, float2* y, Quad* z, uchar4* bytes) {
  const float4 v = x[threadIdx.x];
  y[threadIdx.x] = make_float2(v.x + v.y, v.z * v.w);
  z[threadIdx.x] = Quad{{v.w, v.z, v.y, v.x}};
  bytes[threadIdx.x] = make_uchar4(1, 2, 3, (unsigned char)threadIdx.x);
}
KERNEL void arg_min(const float* x, Pair* out) {
  Pair best = {x[threadIdx.x], (int)threadIdx.x};
  for (int by = 16; by; by /= 2) {
    const float key = __shfl_down_sync(FULL, best.key, by);
    const int index = __shfl_down_sync(FULL, best.index, by);
    if (key < best.key) best = Pair{key, index};
  }
  if (threadIdx.x == 0) *out = best;
}
KERNEL void by_value(Pair p, float scale, long long n, bool flag, const unsigned char* bytes, double* out) {
  out[threadIdx.x] = p.key * scale + p.index + (double)n + (flag ? 0.5 : 0) + bytes[threadIdx.x];
}
KERNEL void halves(const __half* x, const __nv_bfloat16* y, __half* hx, __nv_bfloat16* hy, __half2* pairs) {
  const int t = threadIdx.x;
  hx[t] = __hfma(x[t], x[t], __float2half(0.5f));
  hy[t] = y[t] * y[t] + __float2bfloat16(1.0f);
  pairs[t] = __hadd2(__halves2half2(x[t], x[t]), __float2half2_rn(2.0f));
}
KERNEL void integers(const u32* x, u32* out) {
  const u32 v = x[threadIdx.x];
  u32* at = out + threadIdx.x * 8;
  at[0] = __popc(v), at[1] = __clz((int)v), at[2] = __brev(v), at[3] = __ffs((int)v);
  at[4] = __umulhi(v, 0x9e3779b9u), at[5] = __byte_perm(v, 0x01020304u, 0x6543);
  at[6] = __funnelshift_l(v, v >> 3, 5), at[7] = (u32)__dp4a((int)v, 0x01010101, 1);
}
KERNEL void functions(const float* x, float* out) {
  const float v = x[threadIdx.x];
  float* at = out + threadIdx.x * 8;
  at[0] = expf(v), at[1] = logf(v), at[2] = rsqrtf(v), at[3] = powf(v, 1.5f);
  at[4] = fminf(v, 2.0f), at[5] = __saturatef(v), at[6] = sinf(v), at[7] = fmaf(v, v, 1.0f);
}
__constant__ float weights[4] = {1, 2, 3, 4};
__device__ int counter;
__device__ float table[8];
KERNEL void constants(float* out) {
  if (threadIdx.x < 8) table[threadIdx.x] = weights[threadIdx.x & 3] * threadIdx.x;
  __syncthreads();
  if (threadIdx.x < 8) out[threadIdx.x] = table[7 - threadIdx.x];
  atomicAdd(&counter, 1);
}
template <class T, int N>
__device__ T folded(const T* x) {
  T sum = 0;
  for (int i = 0; i < N; i++) sum += x[i];
  return sum;
}
template <class T>
__global__ void instance(const T* x, T* y) {
  y[threadIdx.x] = folded<T, 4>(x + 4 * threadIdx.x);
}
KERNEL void lambdas(const int* x, int* y, int by) {
  auto f = [=](int v) { return v * by + (int)threadIdx.x; };
  y[threadIdx.x] = f(x[threadIdx.x]);
}

// ---- PTX
__device__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
__device__ void barrier_init(u64* b, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(count) : "memory");
}
__device__ void barrier_arrive(u64* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ void barrier_wait(u64* b, u32 parity) {
  asm volatile(
      "{\n .reg .pred p;\n again_%=:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      " @p bra done_%=;\n bra again_%=;\n done_%=:\n}" ::"r"(shared_address(b)),
      "r"(parity)
      : "memory");
}
KERNEL void producer_consumer(const int* x, int* y, int rounds) {
  __shared__ __align__(16) int stage[2][32];
  __shared__ u64 full[2], empty[2];
  const int warp = threadIdx.x / 32, lane = threadIdx.x & 31;
  if (threadIdx.x == 0)
    for (int s = 0; s < 2; s++) barrier_init(full + s, 1), barrier_init(empty + s, 32);
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  __syncthreads();
  if (warp == 0 && lane == 0) {
    for (int r = 0; r < rounds; r++) {
      const int s = r & 1;
      if (r >= 2) barrier_wait(empty + s, (r / 2 + 1) & 1);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(full + s)), "r"(128)
                   : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       shared_address(stage[s])),
                   "l"(x + 32 * r), "r"(128), "r"(shared_address(full + s))
                   : "memory");
    }
  } else if (warp == 1) {
    int sum = 0;
    for (int r = 0; r < rounds; r++) {
      const int s = r & 1;
      barrier_wait(full + s, (r / 2) & 1);
      sum += stage[s][31 - lane];
      barrier_arrive(empty + s);
    }
    y[lane] = sum;
  }
}
KERNEL void named_barriers(const int* x, int* y) {
  __shared__ int s[64];
  const int half = threadIdx.x / 64, t = threadIdx.x & 63;
  if (half == 0) {
    s[t] = x[t];
    asm volatile("bar.arrive 1, 128;" ::: "memory");
  } else {
    asm volatile("bar.sync 1, 128;" ::: "memory");
    y[t] = s[63 - t];
  }
}
KERNEL void ptx_accesses(const u32* x, u32* y, u64* wide) {
  const int t = threadIdx.x;
  u32 a, b, c, d, lane;
  asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(x + 4 * t));
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(y + 2 * t), "r"(a + b), "r"(c + d + lane) : "memory");
  u64 low, high;
  asm volatile("{ .reg .b128 w; mov.b128 w, {%1, %2}; st.relaxed.gpu.global.b128 [%0], w; }" ::"l"(wide + 2 * t), "l"((u64)a),
               "l"((u64)d)
               : "memory");
  asm volatile("{ .reg .b128 w; ld.relaxed.gpu.global.b128 w, [%2]; mov.b128 {%0, %1}, w; }"
               : "=l"(low), "=l"(high)
               : "l"(wide + 2 * t)
               : "memory");
  wide[2 * t] = low + high;
}
