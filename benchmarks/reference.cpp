// reference.cpp - what a C++ programmer would write by hand: one plain loop an expression, OpenMP threads; for arrays of
// other layouts a loop nest in the order of the output, in tiles where an input is turned.
// Compiled with -ffast-math, so that g++ may reorder sums and call the vector forms of exp and sin in libmvec.
#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace {

typedef int64_t i64;

constexpr i64 block_bytes = 4096;

// Each thread takes one part of [0, n), whole blocks of 1024 elements but for the last.
template <class Body>
void parts(i64 n, int threads, Body body) {
  i64 blocks = (n + 1023) / 1024;
#pragma omp parallel num_threads(threads)
  {
    i64 me = omp_get_thread_num(), all = omp_get_num_threads();
    body(std::min(n, blocks * me / all * 1024), std::min(n, blocks * (me + 1) / all * 1024), (int)me);
  }
}

// Writes a block past the caches; `to` is aligned as far as the first full line.
void stream(char* to, const char* from, i64 bytes) {
  i64 head = std::min<i64>(bytes, -(intptr_t)to & 63);
  std::memcpy(to, from, head);
  i64 at = head;
#if defined(__AVX512F__)
  for (; at + 64 <= bytes; at += 64) _mm512_stream_si512((__m512i*)(to + at), _mm512_loadu_si512(from + at));
#else
  for (; at + 16 <= bytes; at += 16) _mm_stream_si128((__m128i*)(to + at), _mm_loadu_si128((const __m128i*)(from + at)));
#endif
  std::memcpy(to + at, from + at, bytes - at);
}

template <class T, class F>
void map(T* out, i64 n, int threads, bool streams, F f) {
  parts(n, threads, [=](i64 begin, i64 end, int) {
    if (!streams) {
#pragma omp simd
      for (i64 i = begin; i < end; i++) out[i] = f(i);
      return;
    }
    constexpr i64 width = block_bytes / sizeof(T);
    alignas(64) T block[width];
    for (i64 at = begin; at < end; at += width) {
      i64 m = std::min(width, end - at);
#pragma omp simd
      for (i64 i = 0; i < m; i++) block[i] = f(at + i);
      stream((char*)(out + at), (const char*)block, m * sizeof(T));
    }
    _mm_sfence();
  });
}

template <class A, class F>
A total(i64 n, int threads, F f) {
  std::vector<A> sums(threads * 16);
  parts(n, threads, [&sums, f](i64 begin, i64 end, int me) {
    A sum = 0;
    for (i64 i = begin; i < end; i++) sum += f(i);
    sums[me * 16] = sum;
  });
  A sum = 0;
  for (A part : sums) sum += part;
  return sum;
}

template <class T>
T largest(const T* x, i64 n, int threads) {
  std::vector<T> found(threads * 16, std::numeric_limits<T>::lowest());
  parts(n, threads, [&found, x](i64 begin, i64 end, int me) {
    T most = std::numeric_limits<T>::lowest();
    for (i64 i = begin; i < end; i++) most = x[i] > most ? x[i] : most;
    found[me * 16] = most;
  });
  return *std::max_element(found.begin(), found.end());
}

template <class T>
void statistics(const T* x, T* out, i64 n, int threads) {
  struct Part { T sum, least, most; char pad[64]; };
  T high = std::numeric_limits<T>::max(), low = std::numeric_limits<T>::lowest();
  std::vector<Part> found(threads, Part{0, high, low, {}});
  parts(n, threads, [=, &found](i64 begin, i64 end, int me) {
    T sum = 0, least = high, most = low;
    for (i64 i = begin; i < end; i++) {
      sum += x[i];
      least = x[i] < least ? x[i] : least;
      most = x[i] > most ? x[i] : most;
    }
    found[me] = Part{sum, least, most, {}};
  });
  out[0] = 0, out[1] = high, out[2] = low;
  for (const Part& p : found) out[0] += p.sum, out[1] = std::min(out[1], p.least), out[2] = std::max(out[2], p.most);
}

// Arrays of any strides, in elements, of four dimensions, the output's fastest one last.
struct Strides {
  i64 d[4];
};

// Rows, where no input is contiguous along another dimension.
template <class T, class F>
void rows(T* out, const i64* n, Strides so, int threads, bool streams, F f) {
#pragma omp parallel for collapse(3) num_threads(threads)
  for (i64 i = 0; i < n[0]; i++)
    for (i64 j = 0; j < n[1]; j++)
      for (i64 k = 0; k < n[2]; k++) {
        T* to = out + i * so.d[0] + j * so.d[1] + k * so.d[2];
        constexpr i64 width = block_bytes / sizeof(T);
        alignas(64) T block[width];
        for (i64 at = 0; at < n[3]; at += width) {
          i64 m = std::min(width, n[3] - at);
          T* made = streams ? block : to + at;
#pragma omp simd
          for (i64 l = 0; l < m; l++) made[l] = f(i, j, k, at + l);
          if (streams) stream((char*)(to + at), (const char*)block, m * sizeof(T));
        }
      }
  _mm_sfence();
}

// Tiles of 64 x 64 in the first-level cache, where the input is contiguous along the dimension before the last.
template <class T>
void tiles(const T* a, T* out, const i64* n, Strides sa, Strides so, int threads, bool streams) {
  constexpr i64 side = 64;
#pragma omp parallel for collapse(4) num_threads(threads)
  for (i64 i = 0; i < n[0]; i++)
    for (i64 j = 0; j < n[1]; j++)
      for (i64 left = 0; left < n[3]; left += side)
        for (i64 top = 0; top < n[2]; top += side) {
          alignas(64) T tile[side][side + 64 / sizeof(T)];
          const T* from = a + i * sa.d[0] + j * sa.d[1] + top * sa.d[2] + left * sa.d[3];
          T* to = out + i * so.d[0] + j * so.d[1] + top * so.d[2] + left * so.d[3];
          i64 h = std::min(side, n[2] - top), w = std::min(side, n[3] - left);
          i64 l = 0;  // eight source rows at a time: more do not fit the sets of a cache
          for (; l + 8 <= w; l += 8)
            for (i64 k = 0; k < h; k++) {
              const T* x = from + l * sa.d[3] + k;
              i64 s = sa.d[3];
              const T eight[] = {x[0], x[s], x[2 * s], x[3 * s], x[4 * s], x[5 * s], x[6 * s], x[7 * s]};
#pragma omp simd
              for (int e = 0; e < 8; e++) tile[k][l + e] = T(2) * eight[e] + T(1);
            }
          for (; l < w; l++)
            for (i64 k = 0; k < h; k++) tile[k][l] = T(2) * from[l * sa.d[3] + k] + T(1);
          for (i64 k = 0; k < h; k++) {
            if (streams)
              stream((char*)(to + k * so.d[2]), (const char*)tile[k], w * sizeof(T));
            else
              std::memcpy(to + k * so.d[2], tile[k], w * sizeof(T));
          }
        }
  _mm_sfence();
}

// 2*a + 1, or a + b.
template <class T>
void layout(const T* a, const T* b, T* out, const i64* n, Strides sa, Strides sb, Strides so, int threads, bool streams) {
  if (!b && sa.d[2] == 1 && n[2] > 1) return tiles(a, out, n, sa, so, threads, streams);
  auto at = [=](const T* x, Strides s, i64 i, i64 j, i64 k, i64 l) { return x[i * s.d[0] + j * s.d[1] + k * s.d[2] + l * s.d[3]]; };
  // The compiler needs to see the steps that it is to have registers for.
  auto sum = [&](auto step) {
    Strides s = sb;
    s.d[3] = step;
    rows(out, n, so, threads, streams, [=](i64 i, i64 j, i64 k, i64 l) {
      return a[i * sa.d[0] + j * sa.d[1] + k * sa.d[2] + l] + at(b, s, i, j, k, l);
    });
  };
  auto scale = [&](auto step) {
    Strides s = sa;
    s.d[3] = step;
    rows(out, n, so, threads, streams, [=](i64 i, i64 j, i64 k, i64 l) { return T(2) * at(a, s, i, j, k, l) + T(1); });
  };
  if (b)
    sb.d[3] ? sum(std::integral_constant<i64, 1>()) : sum(std::integral_constant<i64, 0>());
  else if (sa.d[3] == 1)
    scale(std::integral_constant<i64, 1>());
  else if (sa.d[3] == 2)
    scale(std::integral_constant<i64, 2>());
  else if (sa.d[3] == -1)
    scale(std::integral_constant<i64, -1>());
  else
    scale(sa.d[3]);
}

}  // namespace

// Every function takes three inputs, unused ones null, and the output: an array, or the results of a reduction.
#define LOOPS(T, suffix)                                                                                                  \
  extern "C" void scale_##suffix(const T* a, const T*, const T*, T* out, i64 n, int threads, int streams) {               \
    map(out, n, threads, streams, [=](i64 i) { return T(2) * a[i] + T(1); });                                             \
  }                                                                                                                       \
  extern "C" void multiply_add_##suffix(const T* a, const T* b, const T* c, T* out, i64 n, int threads, int streams) {    \
    map(out, n, threads, streams, [=](i64 i) { return a[i] * b[i] + c[i]; });                                             \
  }                                                                                                                       \
  extern "C" void exp_##suffix(const T* a, const T*, const T*, T* out, i64 n, int threads, int streams) {                 \
    map(out, n, threads, streams, [=](i64 i) { return std::exp(a[i]); });                                                 \
  }                                                                                                                       \
  extern "C" void wave_##suffix(const T* a, const T* b, const T* c, T* out, i64 n, int threads, int streams) {            \
    map(out, n, threads, streams, [=](i64 i) { return std::exp(-a[i] * a[i]) * std::sin(b[i]) + std::sqrt(c[i]); });      \
  }                                                                                                                       \
  extern "C" void sum_##suffix(const T* a, const T*, const T*, T* out, i64 n, int threads, int) {                         \
    *out = total<T>(n, threads, [=](i64 i) { return a[i]; });                                                             \
  }                                                                                                                       \
  extern "C" void maximum_##suffix(const T* a, const T*, const T*, T* out, i64 n, int threads, int) {                     \
    *out = largest(a, n, threads);                                                                                        \
  }                                                                                                                       \
  extern "C" void statistics_##suffix(const T* a, const T*, const T*, T* out, i64 n, int threads, int) {                  \
    statistics(a, out, n, threads);                                                                                       \
  }                                                                                                                       \
  extern "C" void distance_##suffix(const T* a, const T* b, const T* c, T* out, i64 n, int threads, int) {                \
    *out = total<T>(n, threads, [=](i64 i) { return (a[i] - b[i]) * (a[i] - b[i]) * c[i]; });                             \
  }

LOOPS(float, f32)
LOOPS(double, f64)

// `strides` are those of a, of b and of out, four each.
#define LAYOUT(T, suffix)                                                                                               \
  extern "C" void layout_##suffix(const T* a, const T* b, T* out, const i64* n, const Strides* s, int threads, int nt) { \
    layout(a, b, out, n, s[0], s[1], s[2], threads, nt);                                                                \
  }

LAYOUT(float, f32)
LAYOUT(double, f64)

extern "C" void sort_by_size_f32(const float* a, const float*, const float*, float* out, i64 n, int, int) {
  std::memcpy(out, a, n * sizeof(float));
  std::sort(out, out + n, [](float x, float y) { return std::fabs(x) < std::fabs(y); });
}

extern "C" void sum_i32(const int32_t* a, const int32_t*, const int32_t*, i64* out, i64 n, int threads, int) {
  *out = total<i64>(n, threads, [=](i64 i) { return (i64)a[i]; });
}
