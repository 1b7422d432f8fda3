// What kernels may do of C++: memory of their own, lists, virtual functions, recursion, unions, local arrays, bytes in structs, locks.
#include <assert.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuComplex.h>
#include <stdio.h>
#include <string.h>

struct Shape {
  __device__ virtual ~Shape() {}
  __device__ virtual float area() const = 0;
};
struct Square : Shape {
  float side;
  __device__ explicit Square(float s) : side(s) {}
  __device__ float area() const override { return side * side; }
};
struct Disc final : Shape {
  float radius;
  __device__ explicit Disc(float r) : radius(r) {}
  __device__ float area() const override { return 3 * radius * radius; }
};
__global__ void areas(float* out) {
  Shape* shape = threadIdx.x % 2 ? (Shape*)new Disc(threadIdx.x) : new Square(threadIdx.x);
  out[threadIdx.x] = shape->area();
  delete shape;
}
struct Node {
  int value;
  Node* next;
};
__device__ Node* head;
__global__ void push() {
  Node* node = (Node*)malloc(sizeof(Node));
  node->value = threadIdx.x;
  Node* seen;
  do {
    seen = *(Node* volatile*)&head;
    node->next = seen;
    __threadfence();
  } while (atomicCAS((unsigned long long*)&head, (unsigned long long)seen, (unsigned long long)node) != (unsigned long long)seen);
}
__global__ void pop_all(int* sum) {
  for (Node* n = head; n;) {
    *sum += n->value;
    Node* next = n->next;
    free(n);
    n = next;
  }
  head = nullptr;
}
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
union Bits {
  float f;
  unsigned u;
  unsigned char bytes[4];
};
struct Packed {
  unsigned a : 3, b : 13, c : 16;
};
struct alignas(16) Wide {
  double x;
  float3 y;
};
__global__ void numbers(int* out, Packed* packed, Wide* wide, const Bits* bits) {
  const int t = threadIdx.x;
  int local[300];
  for (int i = 0; i < 300; i++) local[i] = i * t;
  int sum = 0;
  for (int i = 0; i < 300; i += 7) sum += local[(i * 31) % 300];
  Bits b = bits[t];
  b.bytes[3] ^= 0x80;
  out[t] = fibonacci(t % 12) + (b.f == -bits[t].f) + (sum == 0);
  packed[t].b = t * 5, packed[t].c = t;
  Wide w;
  w.x = t, w.y = make_float3(1, 2, t);
  wide[t] = w;
}

// Structs of 64 bytes, byte by byte, through shared memory, locals and volatile words.
struct Block64 {
  unsigned char b[64];
};
struct Fields64 {
  unsigned char a, b, c, d;
  struct { unsigned char e, f, g, h; } inner[15];
};
template <class T> __global__ void carry(const T* in, T* out, const int* to, int n) {
  __shared__ T s[64];
  __shared__ volatile int ready;
  if (threadIdx.x == 0) ready = 0;
  __syncthreads();
  T mine[4];
  for (int r = 0; r < 4; r++) {
    const int i = blockIdx.x * 256 + r * 64 + threadIdx.x;
    if (i < n) mine[r] = in[i];
  }
  for (int r = 0; r < 4; r++) {
    const int i = blockIdx.x * 256 + r * 64 + threadIdx.x;
    const unsigned same = __match_any_sync(~0u, i & 3);
    if (i < n) memcpy(&s[threadIdx.x], &mine[r], sizeof(T));
    __syncthreads();
    if (threadIdx.x == 63) ready = r + 1;
    while (ready <= r) {}
    if (i < n && same) out[to[i]] = s[threadIdx.x];
    __syncthreads();
  }
}

__device__ int lock = 0;
__device__ volatile int guarded;
__global__ void locked() {
  for (bool done = false; !done;) {
    if (atomicCAS(&lock, 0, 1) == 0) {
      __threadfence();
      guarded = guarded + 1;
      __threadfence();
      atomicExch(&lock, 0);
      done = true;
    }
  }
}
__global__ void halves(const half2* x, const __nv_bfloat162* y, half2* out, __nv_bfloat162* also, __half* sum, cuFloatComplex* z) {
  const int i = threadIdx.x;
  const half2 twice = __hmul2(x[i], __float2half2_rn(2.0f));
  out[i] = __hfma2(twice, x[i], __floats2half2_rn(1.0f, -1.0f));
  also[i] = __hadd2(y[i], __float22bfloat162_rn(make_float2(0.5f, 1.5f)));
  __shared__ half2 neighbours[32];  // of a class, whose constructor the compiler wants to have called
  neighbours[i] = out[i];
  __syncwarp();
  const float2 wide = __half22float2(neighbours[i ^ 1]);
  __syncwarp();
  neighbours[i ^ 1] = __floats2half2_rn(wide.x, wide.y);
  __syncwarp();
  atomicAdd(sum, __float2half(wide.x > 0 ? 1.0f : 0.0f));
  if (__hgt(__low2half(out[i]), __high2half(out[i]))) atomicAdd(sum, __half(0.5));
  const float2 own = __half22float2(neighbours[i]);
  z[i] = cuCmulf(make_cuFloatComplex(own.x, own.y), make_cuComplex(0, 1));
}
__global__ void talk(const char* word) {
  if (threadIdx.x < 2) printf("%s %d of %u: %5.2f %lld %c\n", word, threadIdx.x, blockDim.x, 1.5 * threadIdx.x, 1LL << 40, 'x');
  assert(threadIdx.x < 99 && "never");
}

template <class T> int carried(int n) {
  T *in, *out;
  int* to;
  cudaMallocManaged(&in, n * sizeof(T)), cudaMallocManaged(&out, n * sizeof(T)), cudaMallocManaged(&to, n * sizeof(int));
  for (int i = 0; i < n; i++) memset(&in[i], i, sizeof(T)), to[i] = (i * 11) % n;
  carry<T><<<(n + 255) / 256, 64>>>(in, out, to, n);
  cudaDeviceSynchronize();
  int wrong = 0;
  for (int i = 0; i < n; i++) wrong += memcmp(&in[i], &out[(i * 11) % n], sizeof(T)) != 0;
  return wrong;
}

int main(void) {
  int wrong = 0, *out;
  float* f;
  cudaMallocManaged(&f, 32 * sizeof(float));
  areas<<<1, 32>>>(f);
  cudaDeviceSynchronize();
  for (int i = 0; i < 32; i++) wrong += f[i] != (i % 2 ? 3 : 1) * i * i;
  cudaMallocManaged(&out, 32 * sizeof(int));
  memset(out, 0, 32 * sizeof(int));
  push<<<2, 32>>>();
  pop_all<<<1, 1>>>(out);
  cudaDeviceSynchronize();
  wrong += out[0] != 2 * 496;
  Packed* packed;
  Wide* wide;
  Bits* bits;
  cudaMallocManaged(&packed, 32 * sizeof(Packed)), cudaMallocManaged(&wide, 32 * sizeof(Wide));
  cudaMallocManaged(&bits, 32 * sizeof(Bits));
  memset(packed, 0, 32 * sizeof(Packed));
  for (int i = 0; i < 32; i++) bits[i].f = i + 1;
  numbers<<<1, 32>>>(out, packed, wide, bits);
  cudaDeviceSynchronize();
  wrong += out[11] != 90 || packed[31].b != 155 || packed[31].c != 31 || wide[7].y.z != 7;
  wrong += carried<Block64>(1000) + carried<Fields64>(777);
  locked<<<3, 33>>>();
  int count;
  cudaMemcpyFromSymbol(&count, guarded, sizeof count);
  wrong += count != 99;
  half2 *x, *h;
  __nv_bfloat162 *y, *b;
  __half* sum;
  cuFloatComplex* z;
  cudaMallocManaged(&x, 128), cudaMallocManaged(&h, 128), cudaMallocManaged(&y, 128), cudaMallocManaged(&b, 128);
  cudaMallocManaged(&sum, 2), cudaMallocManaged(&z, 256);
  *sum = __float2half(0.0f);
  for (int i = 0; i < 32; i++) x[i] = __floats2half2_rn(i, -i), y[i] = __floats2bfloat162_rn(i, 2 * i);
  halves<<<1, 32>>>(x, y, h, b, sum, z);
  cudaDeviceSynchronize();
  for (int i = 0; i < 32; i++) {
    wrong += __low2float(h[i]) != 2 * i * i + 1 || __high2float(h[i]) != 2 * i * i - 1;
    wrong += __bfloat162float(b[i].x) != i + 0.5f || z[i].x != -(2.0f * i * i - 1) || z[i].y != 2.0f * i * i + 1;
  }
  wrong += __half2float(*sum) != 48;
  talk<<<1, 3>>>("thread");
  cudaDeviceSynchronize();
  printf("%d wrong, %s\n", wrong, cudaGetErrorString(cudaGetLastError()));
  return wrong;
}
