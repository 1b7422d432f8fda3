// flash_attention: out = softmax(q @ k.T * scale) @ v for arrays of shape (heads, length, 64), each head by itself; no row
// of scores is ever stored.  A block takes 64 queries of a head and the keys in tiles of 64.  Each of its 16 x 16 threads
// holds 4 x 4 scores, 16 rows and 16 columns apart, and the same part of the result.  The running maximum and sum of a row
// are held by the 16 threads that share it (Dao et al., 2022; the online softmax of Milakov and Gimelshein, 2018).
constexpr int width = 64, tile = 64, threads = 16, own = tile / threads;
constexpr int pitch = width + 1;  // threads of a warp read rows in banks of their own
constexpr float lowest = -3.402823466e38f;

static __device__ __forceinline__ float largest_of_row(float value) {
#pragma unroll
  for (int offset = threads / 2; offset; offset /= 2)
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

static __device__ __forceinline__ float sum_of_row(float value) {
#pragma unroll
  for (int offset = threads / 2; offset; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}

static __device__ __forceinline__ void fetch(float* to, const float* from, int first, int length, float scale) {
#pragma unroll
  for (int t = 0; t < tile * width / (threads * threads); ++t) {
    const int e = (t * threads + threadIdx.y) * threads + threadIdx.x, row = e / width, column = e % width;
    to[row * pitch + column] = first + row < length ? scale * from[(long)(first + row) * width + column] : 0.0f;
  }
}

extern "C" __global__ void __launch_bounds__(threads * threads)
flash_attention(const float* __restrict__ q, const float* __restrict__ k, const float* __restrict__ v,
                float* __restrict__ out, int length, float scale) {
  extern __shared__ float shared[];
  float *queries = shared, *keys = shared + tile * pitch, *values = keys + tile * pitch;
  const int tx = threadIdx.x, ty = threadIdx.y, first = blockIdx.x * tile;
  const long head = (long)blockIdx.y * length * width;
  float sum[own] = {}, largest[own], result[own][own] = {};
#pragma unroll
  for (int i = 0; i < own; ++i) largest[i] = lowest;
  fetch(queries, q + head, first, length, scale);
  for (int at = 0; at < length; at += tile) {
    __syncthreads();  // the tiles of the turn before are read
    fetch(keys, k + head, at, length, 1.0f);
    fetch(values, v + head, at, length, 1.0f);
    __syncthreads();
    float score[own][own] = {};
#pragma unroll 16
    for (int d = 0; d < width; ++d) {
      float a[own], b[own];
#pragma unroll
      for (int i = 0; i < own; ++i) {
        a[i] = queries[(ty + i * threads) * pitch + d];
        b[i] = keys[(tx + i * threads) * pitch + d];
      }
#pragma unroll
      for (int i = 0; i < own; ++i)
#pragma unroll
        for (int j = 0; j < own; ++j) score[i][j] += a[i] * b[j];
    }
#pragma unroll
    for (int i = 0; i < own; ++i) {
      float top = largest[i];
#pragma unroll
      for (int j = 0; j < own; ++j) {
        if (at + tx + j * threads >= length) score[i][j] = lowest;
        top = fmaxf(top, score[i][j]);
      }
      top = largest_of_row(top);
      const float shrink = __expf(largest[i] - top);
      float part = 0.0f;
#pragma unroll
      for (int j = 0; j < own; ++j) part += score[i][j] = __expf(score[i][j] - top);
      largest[i] = top;
      sum[i] = sum[i] * shrink + sum_of_row(part);
#pragma unroll
      for (int j = 0; j < own; ++j) result[i][j] *= shrink;
    }
    __syncthreads();  // the keys are read: their place takes the weights
#pragma unroll
    for (int i = 0; i < own; ++i)
#pragma unroll
      for (int j = 0; j < own; ++j) keys[(ty + i * threads) * pitch + tx + j * threads] = score[i][j];
    __syncthreads();
#pragma unroll 16
    for (int d = 0; d < tile; ++d) {
      float a[own], b[own];
#pragma unroll
      for (int i = 0; i < own; ++i) {
        a[i] = keys[(ty + i * threads) * pitch + d];
        b[i] = values[d * pitch + tx + i * threads];
      }
#pragma unroll
      for (int i = 0; i < own; ++i)
#pragma unroll
        for (int j = 0; j < own; ++j) result[i][j] += a[i] * b[j];
    }
  }
#pragma unroll
  for (int i = 0; i < own; ++i)
#pragma unroll
    for (int j = 0; j < own; ++j) {
      const int row = first + ty + i * threads;
      if (row < length) out[head + (long)row * width + tx + j * threads] = result[i][j] / sum[i];
    }
}
