// Matrices, pictures and stencils: two-dimensional shared memory, padding, vectors, halos, constants, copies ahead.
#include <cuda_pipeline.h>
#include <cuda_runtime.h>
#include <math_constants.h>

#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#define TILE 16
#define CEIL_DIV(a, b) (((a) + (b)-1) / (b))
#define OFFSET(row, col, ld) ((row) * (ld) + (col))
#define FETCH_FLOAT4(pointer) (reinterpret_cast<float4*>(&(pointer))[0])

template <int BLOCK_SIZE> __global__ void multiply(float* C, float* A, float* B, int wA, int wB) {
  int bx = blockIdx.x, by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
  int aBegin = wA * BLOCK_SIZE * by, aEnd = aBegin + wA - 1, bBegin = BLOCK_SIZE * bx;
  float Csub = 0;
  for (int a = aBegin, b = bBegin; a <= aEnd; a += BLOCK_SIZE, b += BLOCK_SIZE * wB) {
    __shared__ float As[BLOCK_SIZE][BLOCK_SIZE];
    __shared__ float Bs[BLOCK_SIZE][BLOCK_SIZE];
    As[ty][tx] = A[a + wA * ty + tx];
    Bs[ty][tx] = B[b + wB * ty + tx];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BLOCK_SIZE; ++k) Csub += As[ty][k] * Bs[k][tx];
    __syncthreads();
  }
  C[wB * BLOCK_SIZE * by + BLOCK_SIZE * bx + wB * ty + tx] = Csub;
}
// A tile of registers for each thread, vectors to and from memory.
template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ __launch_bounds__((BM * BN) / (TM * TN), 1) void registers(int M, int N, int K, float* A, float* B, float* C) {
  __shared__ float As[BK * BM];
  __shared__ float Bs[BK * BN];
  const uint tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
  A += blockIdx.y * BM * K, B += blockIdx.x * BN, C += blockIdx.y * BM * N + blockIdx.x * BN;
  float results[TM][TN] = {0.0f}, m[TM], n[TN];
  for (uint k = 0; k < K; k += BK) {
    for (uint i = threadIdx.x; i < BM * BK / 4; i += blockDim.x) {
      const uint row = i / (BK / 4), col = i % (BK / 4);
      const float4 four = FETCH_FLOAT4(A[OFFSET(row, col * 4, K)]);
      As[(col * 4 + 0) * BM + row] = four.x, As[(col * 4 + 1) * BM + row] = four.y;
      As[(col * 4 + 2) * BM + row] = four.z, As[(col * 4 + 3) * BM + row] = four.w;
    }
    for (uint i = threadIdx.x; i < BK * BN / 4; i += blockDim.x)
      FETCH_FLOAT4(Bs[i * 4]) = FETCH_FLOAT4(B[OFFSET(i / (BN / 4), i % (BN / 4) * 4, N)]);
    __syncthreads();
    A += BK, B += BK * N;
    for (uint dot = 0; dot < BK; dot++) {
      for (uint i = 0; i < TM; i++) m[i] = As[dot * BM + ty * TM + i];
      for (uint j = 0; j < TN; j++) n[j] = Bs[dot * BN + tx * TN + j];
      for (uint i = 0; i < TM; i++)
        for (uint j = 0; j < TN; j++) results[i][j] = fmaf(m[i], n[j], results[i][j]);
    }
    __syncthreads();
  }
  for (uint i = 0; i < TM; i++)
    for (uint j = 0; j < TN; j += 4)
      *reinterpret_cast<float4*>(&C[(ty * TM + i) * N + tx * TN + j]) =
          make_float4(results[i][j], results[i][j + 1], results[i][j + 2], results[i][j + 3]);
}
__global__ void transposed(float* out, const float* in, int width, int height) {
  __shared__ float tile[TILE][TILE + 1];
  int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
  if (x < width && y < height) tile[threadIdx.y][threadIdx.x] = in[y * width + x];
  __syncthreads();
  x = blockIdx.y * TILE + threadIdx.x, y = blockIdx.x * TILE + threadIdx.y;
  if (x < height && y < width) out[y * height + x] = tile[threadIdx.x][threadIdx.y];
}
constexpr int RADIUS = 3;
__constant__ float taps[2 * RADIUS + 1];
__global__ void convolved(const float* __restrict__ in, float* __restrict__ out, int n) {
  __shared__ float s[128 + 2 * RADIUS];
  const int g = blockIdx.x * blockDim.x + threadIdx.x, l = threadIdx.x + RADIUS;
  s[l] = g < n ? __ldg(in + g) : 0.0f;
  if (threadIdx.x < RADIUS) {
    s[l - RADIUS] = g >= RADIUS ? in[g - RADIUS] : 0.0f;
    s[l + blockDim.x] = g + blockDim.x < n ? in[g + blockDim.x] : 0.0f;
  }
  __syncthreads();
  if (g >= n) return;
  float sum = 0;
  for (int j = -RADIUS; j <= RADIUS; j++) sum += taps[j + RADIUS] * s[l + j];
  out[g] = sum;
}
// Copies two tiles ahead of what is added.
__global__ void ahead(const int* in, int* out, int tiles) {
  __shared__ int stage[3][64];
  int sum = 0;
  for (int t = 0; t < tiles + 2; t++) {
    if (t < tiles) __pipeline_memcpy_async(&stage[t % 3][threadIdx.x], in + t * 64 + threadIdx.x, sizeof(int));
    __pipeline_commit();
    if (t < 2) continue;
    __pipeline_wait_prior(2);
    __syncthreads();
    sum += stage[(t - 2) % 3][63 - threadIdx.x];
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}
__global__ void heat(const float* now, float* next, int w, int h) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, i = y * w + x;
  if (x > 0 && y > 0 && x < w - 1 && y < h - 1) next[i] = 0.25f * (now[i - 1] + now[i + 1] + now[i - w] + now[i + w]);
}
__global__ void softmaxed(float* x, int columns) {
  extern __shared__ float shared[];
  float* row = x + blockIdx.x * columns;
  float most = -CUDART_INF_F, total = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) most = fmaxf(most, row[c]);
  shared[threadIdx.x] = most;
  __syncthreads();
  for (int by = blockDim.x / 2; by; by /= 2) {
    if (threadIdx.x < by) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + by]);
    __syncthreads();
  }
  most = shared[0];
  __syncthreads();
  for (int c = threadIdx.x; c < columns; c += blockDim.x) total += row[c] = __expf(row[c] - most);
  shared[threadIdx.x] = total;
  __syncthreads();
  for (int by = blockDim.x / 2; by; by /= 2) {
    if (threadIdx.x < by) shared[threadIdx.x] += shared[threadIdx.x + by];
    __syncthreads();
  }
  for (int c = threadIdx.x; c < columns; c += blockDim.x) row[c] = __fdividef(row[c], shared[0]);
}

struct Freed {
  void operator()(void* p) const { cudaFree(p); }
};
template <class T> using Memory = std::unique_ptr<T[], Freed>;
template <class T> Memory<T> managed(size_t n) {
  T* p = nullptr;
  if (cudaMallocManaged(&p, n * sizeof(T)) != cudaSuccess) throw 1;
  return Memory<T>(p);
}

int main() {
  int wrong = 0;
  const int M = 32, N = 48, K = 16;
  auto a = managed<float>(M * K), b = managed<float>(K * N), c = managed<float>(M * N), d = managed<float>(M * N);
  for (int i = 0; i < M * K; i++) a[i] = i % 7 - 3;
  for (int i = 0; i < K * N; i++) b[i] = i % 5 - 2;
  multiply<TILE><<<dim3(N / TILE, M / TILE), dim3(TILE, TILE)>>>(c.get(), a.get(), b.get(), K, N);
  registers<16, 16, 8, 4, 4><<<dim3(CEIL_DIV(N, 16), CEIL_DIV(M, 16)), 16>>>(M, N, K, a.get(), b.get(), d.get());
  cudaDeviceSynchronize();
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      float sum = 0;
      for (int k = 0; k < K; k++) sum += a[i * K + k] * b[k * N + j];
      wrong += c[i * N + j] != sum || d[i * N + j] != sum;
    }
  transposed<<<dim3(CEIL_DIV(N, TILE), CEIL_DIV(M, TILE)), dim3(TILE, TILE)>>>(d.get(), c.get(), N, M);
  cudaDeviceSynchronize();
  for (int i = 0; i < M * N; i++) wrong += d[i % N * M + i / N] != c[i];

  std::vector<float> weights = {1, 2, 3, 4, 3, 2, 1};
  cudaMemcpyToSymbol(taps, weights.data(), sizeof(float) * weights.size());
  convolved<<<CEIL_DIV(M * N, 128), 128>>>(c.get(), d.get(), M * N);
  cudaDeviceSynchronize();
  for (int i = 0; i < M * N; i++) {
    float sum = 0;
    for (int j = -RADIUS; j <= RADIUS; j++)
      if (i + j >= 0 && i + j < M * N) sum += weights[j + RADIUS] * c[i + j];
    wrong += sum != d[i];
  }
  auto x = managed<int>(640), y = managed<int>(64);
  for (int i = 0; i < 640; i++) x[i] = i;
  ahead<<<1, 64>>>(x.get(), y.get(), 10);
  cudaDeviceSynchronize();
  for (int t = 0; t < 64; t++) wrong += y[t] != 10 * (63 - t) + 64 * 45;

  for (int i = 0; i < 256; i++) c[i] = d[i] = i < 16 ? 1.0f : 0.0f;
  float *now = c.get(), *next = d.get();
  for (int step = 0; step < 50; step++, std::swap(now, next)) heat<<<dim3(2, 2), dim3(8, 8)>>>(now, next, 16, 16);
  cudaDeviceSynchronize();
  wrong += !(now[16 + 8] > now[32 + 8] && now[32 + 8] > 0);
  for (int i = 0; i < 4 * 100; i++) c[i] = std::sin(float(i));
  softmaxed<<<4, 64, 64 * sizeof(float)>>>(c.get(), 100);
  cudaDeviceSynchronize();
  for (int r = 0; r < 4; r++) {
    float sum = 0;
    for (int i = 0; i < 100; i++) sum += c[r * 100 + i];
    wrong += std::fabs(sum - 1) > 1e-5f;
  }
  printf("%d wrong, %s\n", wrong, cudaGetErrorString(cudaGetLastError()));
  return wrong;
}
