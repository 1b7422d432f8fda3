// Sums in the ways that courses and samples show: from divergent loops to tiles of several warps and the last block.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <stdio.h>
namespace cg = cooperative_groups;

__global__ void interleaved(const int* x, int* sums, unsigned n) {
  extern __shared__ int s[];
  const unsigned t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
  s[t] = i < n ? x[i] : 0;
  __syncthreads();
  for (unsigned by = 1; by < blockDim.x; by *= 2) {
    if (t % (2 * by) == 0) s[t] += s[t + by];
    __syncthreads();
  }
  if (t == 0) atomicAdd(sums, s[0]);
}
template <unsigned SIZE> __device__ void last_warp(volatile int* s, unsigned t) {
  int v = s[t];
  if (SIZE >= 64) v += s[t + 32];
  for (int by = 16; by > 0; by >>= 1) {
    __syncwarp();
    s[t] = v;
    __syncwarp();
    v += s[t + by];
  }
  __syncwarp();
  s[t] = v;
}
template <unsigned SIZE> __global__ void unrolled(const int* x, int* sums, unsigned n) {
  __shared__ int s[SIZE + 32];
  const unsigned t = threadIdx.x;
  int mine = 0;
  for (unsigned i = blockIdx.x * SIZE * 2 + t; i < n; i += SIZE * 2 * gridDim.x) mine += x[i] + (i + SIZE < n ? x[i + SIZE] : 0);
  s[t] = mine;
  if (t < 32) s[SIZE + t] = 0;
  __syncthreads();
  if (SIZE >= 256) {
    if (t < 128) s[t] += s[t + 128];
    __syncthreads();
  }
  if (SIZE >= 128) {
    if (t < 64) s[t] += s[t + 64];
    __syncthreads();
  }
  if (t < 32) last_warp<SIZE>(s, t);
  if (t == 0) atomicAdd(sums, s[0]);
}
__inline__ __device__ int warp_sum(int v) {
  for (int by = warpSize / 2; by > 0; by /= 2) v += __shfl_down_sync(0xffffffff, v, by);
  return v;
}
__inline__ __device__ int block_sum(int v) {
  static __shared__ int part[32];
  const int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  v = warp_sum(v);
  if (lane == 0) part[warp] = v;
  __syncthreads();
  v = threadIdx.x < blockDim.x / warpSize ? part[lane] : 0;
  return warp == 0 ? warp_sum(v) : v;
}
__global__ void shuffled(const int4* x, int* sums, unsigned n) {
  int v = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 4; i += blockDim.x * gridDim.x) {
    const int4 four = x[i];
    v += four.x + four.y + four.z + four.w;
  }
  v = block_sum(v);
  if (threadIdx.x == 0) atomicAdd(sums, v);
}
__global__ void grouped(const int* x, int* sums, unsigned n) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
  __shared__ int part[32];
  int v = 0;
  for (unsigned i = cg::this_grid().thread_rank(); i < n; i += cg::this_grid().size()) v += x[i];
  v = cg::reduce(tile, v, cg::plus<int>());
  if (tile.thread_rank() == 0) part[tile.meta_group_rank()] = v;
  cg::sync(block);
  if (tile.meta_group_rank() == 0) {
    v = tile.thread_rank() < tile.meta_group_size() ? part[tile.thread_rank()] : 0;
    v = cg::reduce(tile, v, cg::plus<int>());
    cg::invoke_one(tile, [&] { atomicAdd(sums, v); });
  }
}
template <int TILE> __global__ void wide(const int* x, int* sums, unsigned n) {
  __shared__ cg::block_tile_memory<1024> memory;
  auto block = cg::this_thread_block(memory);
  auto tile = cg::tiled_partition<TILE>(block);
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  const int before = cg::exclusive_scan(tile, i < n ? x[i] : 0);
  const int total = cg::reduce(tile, i < n ? x[i] : 0, cg::plus<int>());
  if (tile.thread_rank() == tile.size() - 1 && before + (i < n ? x[i] : 0) != total) atomicAdd(sums, 1 << 30);
  if (tile.any(tile.thread_rank() == 5) && tile.thread_rank() == 0) atomicAdd(sums, total);
}
__global__ void coalesced(const int* x, int* sums, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] % 3) {
    auto together = cg::coalesced_threads();
    const int v = cg::reduce(together, x[i], cg::plus<int>());
    if (together.thread_rank() == 0) atomicAdd(sums, v);
  } else if (i < n) {
    atomicAdd(sums, x[i]);
  }
}
__device__ unsigned arrived = 0;
__global__ void last_block(const int* x, volatile int* parts, int* sums, unsigned n) {
  __shared__ bool is_last;
  int v = 0;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) v += x[i];
  v = block_sum(v);
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = v;
    __threadfence();
    is_last = atomicInc(&arrived, gridDim.x) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return;
  v = 0;
  for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) v += parts[i];
  __syncthreads();
  v = block_sum(v);
  if (threadIdx.x == 0) *sums = v, arrived = 0;
}
__global__ void whole_grid(const int* x, int* parts, int* sums, unsigned n) {
  cg::grid_group grid = cg::this_grid();
  int v = 0;
  for (unsigned i = grid.thread_rank(); i < n; i += grid.num_threads()) v += x[i];
  v = block_sum(v);
  if (threadIdx.x == 0) parts[blockIdx.x] = v;
  grid.sync();
  if (grid.thread_rank() == 0) {
    int total = 0;
    for (unsigned i = 0; i < gridDim.x; i++) total += parts[i];
    *sums = total;
  }
}

int main() {
  const unsigned n = 5000, threads = 256, blocks = (n + threads - 1) / threads;
  int *x, *sums, *parts, wanted = 0, wrong = 0;
  cudaMallocManaged(&x, n * sizeof(int));
  cudaMallocManaged(&sums, sizeof(int));
  cudaMalloc(&parts, blocks * sizeof(int));
  for (unsigned i = 0; i < n; i++) wanted += x[i] = (i * 7919) % 101 - 50;
  auto check = [&](const char* name) {
    const cudaError_t error = cudaDeviceSynchronize();
    if (error != cudaSuccess || *sums != wanted) wrong++, printf("%s: %d, not %d (%s)\n", name, *sums, wanted, cudaGetErrorString(error));
    *sums = 0;
  };
  *sums = 0;
  interleaved<<<blocks, threads, threads * sizeof(int)>>>(x, sums, n), check("interleaved");
  unrolled<256><<<4, 256>>>(x, sums, n), check("unrolled 256");
  unrolled<64><<<9, 64>>>(x, sums, n), check("unrolled 64");
  shuffled<<<3, threads>>>((const int4*)x, sums, n), check("shuffled");
  grouped<<<5, 512>>>(x, sums, n), check("grouped");
  wide<64><<<blocks, threads>>>(x, sums, n), check("wide 64");
  wide<256><<<blocks, threads>>>(x, sums, n), check("wide 256");
  coalesced<<<blocks, threads>>>(x, sums, n), check("coalesced");
  last_block<<<blocks, threads>>>(x, parts, sums, n), check("last block");
  last_block<<<3, threads>>>(x, parts, sums, n), check("last block again");
  void* arguments[] = {(void*)&x, &parts, &sums, (void*)&n};
  cudaLaunchCooperativeKernel((void*)whole_grid, 6, threads, arguments), check("whole grid");
  printf("%d wrong\n", wrong);
  return wrong;
}
