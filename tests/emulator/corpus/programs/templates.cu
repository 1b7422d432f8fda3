// The C++ of kernels: shared memory of several types in templates, functors, lambdas, function pointers, namespaces, macros.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <type_traits>

template <class T> struct SharedMemory;
template <> struct SharedMemory<int> {
  __device__ int* get() {
    extern __shared__ int s_int[];
    return s_int;
  }
};
template <> struct SharedMemory<float> {
  __device__ operator float*() {
    extern __shared__ float s_float[];
    return (float*)s_float;
  }
  __device__ float* get() { return *this; }
};
template <> struct SharedMemory<double> {
  __device__ double* get() {
    extern __shared__ double __align__(16) s_double[];
    return s_double;
  }
};

namespace ops {
struct Plus {
  template <class T> __host__ __device__ constexpr T operator()(T a, T b) const { return a + b; }
};
template <class T> struct Largest {
  T floor;
  __device__ __forceinline__ T operator()(T a, T b) const { return a < b ? b : (a < floor ? floor : a); }
};
namespace inner {
template <typename T, int BLOCK, class Op>
__global__ void __launch_bounds__(BLOCK, 2) fold(const T* __restrict__ in, T* __restrict__ out, int n, Op op) {
  T* s = SharedMemory<T>().get();
  const int t = threadIdx.x;
  s[t] = t < n ? in[t] : T(0);
  __syncthreads();
#pragma unroll
  for (int by = BLOCK / 2; by > 0; by >>= 1) {
    if (t < by) s[t] = op(s[t], s[t + by]);
    __syncthreads();
  }
  if constexpr (std::is_same_v<T, double>) {
    if (t == 0) out[0] = s[0] * 2;
  } else if (t == 0) {
    out[0] = s[0];
  }
}
}  // namespace inner
}  // namespace ops

template <class T, class Op> T folded(int n, Op op) {
  constexpr int BLOCK = 128;
  T *in, *out, made;
  cudaMallocManaged(&in, n * sizeof(T));
  cudaMallocManaged(&out, sizeof(T));
  for (int i = 0; i < n; i++) in[i] = T(i);
  ops::inner::fold<T, BLOCK, Op><<<1, BLOCK, BLOCK * sizeof(T)>>>(in, out, n, op);
  cudaDeviceSynchronize();
  made = *out;
  cudaFree(in), cudaFree(out);
  return made;
}

// Functions by their addresses, of the device and of kernels.
typedef float (*Function)(float);
__device__ float halved(float x) { return 0.5f * x; }
__device__ float squared(float x) { return x * x; }
__device__ Function table[] = {halved, squared};
__global__ void apply(float* x, int which) { x[threadIdx.x] = table[which](x[threadIdx.x]); }
__global__ void add_one(float* x, int) { x[threadIdx.x] += 1; }
template <int By> __global__ void times(float* x, int) { x[threadIdx.x] *= By; }

template <class F> __global__ void for_each(int n, F f) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) f(i);
}
template <class F> void run(int n, F f) { for_each<<<2, 32>>>(n, f); }

struct Grid {
  float* cells;
  int width;
  __host__ __device__ float& at(int x, int y) { return cells[y * width + x]; }
  static __device__ int column() { return threadIdx.x; }
};
__global__ void fill(Grid grid, float by) { grid.at(Grid::column(), threadIdx.y) = by * threadIdx.y; }

#define LAUNCH(kernel, blocks, ...)     \
  do {                                  \
    kernel<<<(blocks), 32>>>(__VA_ARGS__); \
    if (cudaGetLastError()) abort();    \
  } while (false)

class Worker {
 public:
  explicit Worker(int n) : n_(n) { cudaMallocManaged(&x_, n * sizeof(float)); }
  ~Worker() { cudaFree(x_); }
  void operator()(float by) {
    float* x = x_;
    run(n_, [=] __device__(int i) { x[i] = by * i; });
    auto twice = [=] __host__ __device__(int i) mutable { x[i] *= 2; };
    run(n_, twice);
    twice(0);
  }
  float* x_;

 private:
  int n_;
};

int main() {
  int wrong = 0;
  wrong += folded<int>(100, ops::Plus()) != 4950;
  wrong += folded<float>(100, ops::Largest<float>{3.5f}) != 99.0f;
  wrong += folded<double>(50, ops::Plus{}) != 2450.0;
  Worker work(64);
  work(1.5f);
  cudaDeviceSynchronize();
  for (int i = 0; i < 64; i++) wrong += work.x_[i] != 3.0f * i;
  float* x = work.x_;
  void (*kernels[])(float*, int) = {apply, add_one, times<3>};
  for (auto kernel : kernels) kernel<<<dim3(1), dim3(32)>>>(x, 1);  // x^2, + 1, * 3
  (*kernels[1])<<<1, 32>>>(x, 0);
  LAUNCH(times<2>, 1, x, 0);
  cudaDeviceSynchronize();
  for (int i = 0; i < 32; i++) wrong += x[i] != 2 * (3 * (9.0f * i * i + 1) + 1);
  fill<<<1, {8, 4}>>>({x, 8}, 0.5f);
  std::function<void()> later = [&] { fill<<<1, dim3(8, 4)>>>(Grid{x + 32, 8}, 0.25f); };
  later();
  cudaDeviceSynchronize();
  wrong += x[31] != 1.5f || x[63] != 0.75f;
  printf("%d wrong\n", wrong);
  return wrong;
}
