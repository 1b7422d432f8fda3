// Sorts, scans and histograms as textbooks write them.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <vector>

#define NUM_BANKS 32
#define LOG_NUM_BANKS 5
#define CONFLICT_FREE_OFFSET(n) ((n) >> LOG_NUM_BANKS)
typedef unsigned int uint;

__global__ void doubling(const float* in, float* out, int n) {
  extern __shared__ float both[];
  const int t = threadIdx.x;
  int to = 0, from = 1;
  both[t] = t > 0 ? in[t - 1] : 0;
  __syncthreads();
  for (int by = 1; by < n; by *= 2) {
    to = 1 - to, from = 1 - to;
    both[to * n + t] = both[from * n + t] + (t >= by ? both[from * n + t - by] : 0);
    __syncthreads();
  }
  out[t] = both[to * n + t];
}
__global__ void up_and_down(float* out, const float* in, int n) {
  extern __shared__ float temp[];
  const int t = threadIdx.x, a = t, b = t + n / 2;
  const int oa = CONFLICT_FREE_OFFSET(a), ob = CONFLICT_FREE_OFFSET(b);
  int offset = 1;
  temp[a + oa] = in[a], temp[b + ob] = in[b];
  for (int d = n >> 1; d > 0; d >>= 1) {
    __syncthreads();
    if (t < d) {
      int i = offset * (2 * t + 1) - 1, j = offset * (2 * t + 2) - 1;
      i += CONFLICT_FREE_OFFSET(i), j += CONFLICT_FREE_OFFSET(j);
      temp[j] += temp[i];
    }
    offset *= 2;
  }
  if (t == 0) temp[n - 1 + CONFLICT_FREE_OFFSET(n - 1)] = 0;
  for (int d = 1; d < n; d *= 2) {
    offset >>= 1;
    __syncthreads();
    if (t < d) {
      int i = offset * (2 * t + 1) - 1, j = offset * (2 * t + 2) - 1;
      i += CONFLICT_FREE_OFFSET(i), j += CONFLICT_FREE_OFFSET(j);
      const float kept = temp[i];
      temp[i] = temp[j], temp[j] += kept;
    }
  }
  __syncthreads();
  out[a] = temp[a + oa], out[b] = temp[b + ob];
}
__device__ inline void compare(uint& ka, uint& va, uint& kb, uint& vb, uint ascending) {
  if ((ka > kb) == ascending) {
    uint k = ka, v = va;
    ka = kb, va = vb, kb = k, vb = v;
  }
}
__global__ void bitonic(uint* keys, uint* values, uint size) {
  __shared__ uint k[512], v[512];
  keys += blockIdx.x * 512 + threadIdx.x, values += blockIdx.x * 512 + threadIdx.x;
  k[threadIdx.x] = keys[0], v[threadIdx.x] = values[0];
  k[threadIdx.x + 256] = keys[256], v[threadIdx.x + 256] = values[256];
  for (uint part = 2; part <= size; part <<= 1) {
    const uint direction = part == size ? 1 : (threadIdx.x & (part / 2)) == 0;
    for (uint stride = part / 2; stride > 0; stride >>= 1) {
      __syncthreads();
      const uint at = 2 * threadIdx.x - (threadIdx.x & (stride - 1));
      compare(k[at], v[at], k[at + stride], v[at + stride], direction);
    }
  }
  __syncthreads();
  keys[0] = k[threadIdx.x], values[0] = v[threadIdx.x];
  keys[256] = k[threadIdx.x + 256], values[256] = v[threadIdx.x + 256];
}
__global__ void odd_even(int* x, int n, int phase) {
  const int i = 2 * (blockIdx.x * blockDim.x + threadIdx.x) + phase;
  if (i + 1 < n && x[i] > x[i + 1]) {
    const int kept = x[i];
    x[i] = x[i + 1], x[i + 1] = kept;
  }
}
__global__ void split_by_bit(uint* x, int bit) {
  __shared__ uint set_in[8], clear_in[8];
  const uint t = threadIdx.x, lane = t & 31, warp = t >> 5, v = x[t];
  const bool set = v >> bit & 1;
  const uint votes = __ballot_sync(0xffffffffu, set), lower = (1u << lane) - 1;
  if (lane == 0) set_in[warp] = __popc(votes), clear_in[warp] = 32 - __popc(votes);
  __syncthreads();
  uint zeros = 0, at = 0;
  for (uint w = 0; w < 8; w++) {
    zeros += clear_in[w];
    if (w < warp) at += set ? set_in[w] : clear_in[w];
  }
  at += __popc((set ? votes : ~votes) & lower) + (set ? zeros : 0);
  x[at] = v;
}
template <typename Key> __global__ void merge_ranks(const Key* a, const Key* b, Key* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const auto rank = [n](const Key* in, Key key, bool upper) {
    int low = 0, high = n;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (in[middle] < key || (upper && in[middle] == key)) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  out[i + rank(b, a[i], false)] = a[i];
  out[i + rank(a, b[i], true)] = b[i];
}
__global__ void bins_of_bytes(const uchar4* x, uint* bins, int n) {
  __shared__ uint mine[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x) mine[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
    const uchar4 four = x[i];
    atomicAdd(mine + four.x, 1), atomicAdd(&mine[four.y], 1), atomicAdd(&mine[four.z], 1u), atomicAdd(&mine[four.w], 1);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (mine[i]) atomicAdd(&bins[i], mine[i]);
}

template <class T> struct Device {
  T* at;
  size_t n;
  explicit Device(const std::vector<T>& v) : n(v.size()) {
    cudaMalloc((void**)&at, n * sizeof(T));
    cudaMemcpy(at, v.data(), n * sizeof(T), cudaMemcpyHostToDevice);
  }
  Device(size_t count, int) : n(count) { cudaMalloc((void**)&at, n * sizeof(T)), cudaMemset(at, 0, n * sizeof(T)); }
  ~Device() { cudaFree(at); }
  std::vector<T> host() const {
    std::vector<T> v(n);
    cudaMemcpy(v.data(), at, n * sizeof(T), cudaMemcpyDeviceToHost);
    return v;
  }
};

int main() {
  int wrong = 0;
  srand(7);
  const int n = 256;
  std::vector<float> x(n), sums(n);
  for (auto& v : x) v = float(rand() % 10);
  std::exclusive_scan(x.begin(), x.end(), sums.begin(), 0.0f);
  Device<float> dx(x), dy(n, 0);
  doubling<<<1, n, 2 * n * sizeof(float)>>>(dx.at, dy.at, n);
  wrong += dy.host() != sums;
  up_and_down<<<1, n / 2, (n + n / NUM_BANKS) * sizeof(float)>>>(dy.at, dx.at, n);
  wrong += dy.host() != sums;

  std::vector<uint> keys(1024), places(1024);
  for (auto& k : keys) k = rand() % 100000;
  std::iota(places.begin(), places.end(), 0u);
  Device<uint> dk(keys), dp(places);
  bitonic<<<2, 256>>>(dk.at, dp.at, 512);
  const auto sorted = dk.host(), from = dp.host();
  for (int i = 0; i < 1024; i++) wrong += keys[from[i]] != sorted[i] || (i % 512 && sorted[i] < sorted[i - 1]);

  std::vector<int> few(301);
  for (auto& v : few) v = rand() % 50 - 25;
  Device<int> df(few);
  for (int phase = 0; phase < 301; phase++) odd_even<<<2, 128>>>(df.at, 301, phase & 1);
  std::sort(few.begin(), few.end());
  wrong += df.host() != few;

  std::vector<uint> bytes(256);
  for (auto& b : bytes) b = rand() & 255;
  Device<uint> db(bytes);
  for (int bit = 0; bit < 8; bit++) split_by_bit<<<1, 256>>>(db.at, bit);
  std::sort(bytes.begin(), bytes.end());
  wrong += db.host() != bytes;

  std::vector<double> a(100), b(100), both(200);
  for (int i = 0; i < 100; i++) a[i] = rand() % 60, b[i] = rand() % 60;
  std::sort(a.begin(), a.end()), std::sort(b.begin(), b.end());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), both.begin());
  Device<double> da(a), dbb(b), dm(200, 0);
  merge_ranks<double><<<1, 128>>>(da.at, dbb.at, dm.at, 100);
  wrong += dm.host() != both;

  std::vector<unsigned char> text(4096);
  std::vector<uint> wanted(256);
  for (auto& c : text) wanted[c = (unsigned char)(rand() % 97)]++;
  Device<unsigned char> dt(text);
  Device<uint> bins(256, 0);
  bins_of_bytes<<<3, 192>>>((const uchar4*)dt.at, bins.at, 1024);
  wrong += bins.host() != wanted;
  printf("%d wrong, %s\n", wrong, cudaGetErrorString(cudaGetLastError()));
  return wrong;
}
