// sort_vectors.hpp - sorts plain numbers with vectors of 64 bytes: splits them until a few vectors hold a part, whose
// elements are then put at their ranks.  Without AVX-512 nothing is sorted.
//
//   km::vector_sort<T>::run(call)   operands: elements; the sorted ones, whether they are (one i64); shape is (length)
//
// Both are contiguous and do not overlap; workspace: as many elements and 64 bytes.  Which of equal numbers of
// different bits comes first is left open, and nan comes out as one number.
#pragma once
#include "sort_merge.hpp"
#include "sort_partition.hpp"

namespace km {

template <class T> struct vector_sort {
  template <int Bytes, class D> struct signed_of { typedef i64 type; };
  template <class D> struct signed_of<4, D> { typedef i32 type; };
  typedef typename signed_of<sizeof(T), void>::type I;
  typedef split_numbers<I> parts;
  static constexpr I largest = (I)(~(bits_of<I>)0 >> 1), smallest = -largest - 1;
  static constexpr bool floating = (T)0.5 != (T)0, natural = !floating && (T)-1 > (T)0;

  // An integer with the order of the number, and back.
  static KM_INL I integer(T value) {
    const I bits = bit_cast<I>(value);
    if constexpr (floating) {
      const I number = bits < 0 ? bits ^ largest : bits;
      return value != value ? largest : number;
    }
    return natural ? bits ^ smallest : bits;
  }
  static KM_INL T number(I bits) {
    if constexpr (floating) return bit_cast<T>(bits < 0 ? bits ^ largest : bits);
    return bit_cast<T>(natural ? bits ^ smallest : bits);
  }

#if defined(__AVX512F__) && defined(__AVX512DQ__)
  typedef I vector __attribute__((vector_size(64)));
  static constexpr i64 lanes = 64 / (i64)sizeof(I), leaf = 4 * lanes;

  struct Job {
    const Call* call;
    T* out;
    I* buffer[2];
  };

  static KM_HOT void integers(const T* from, I* to, i64 n) {
    for (i64 i = 0; i < n; i++) to[i] = integer(from[i]);
  }
  static KM_HOT void numbers(const I* from, T* to, i64 n) {
    for (i64 i = 0; i < n; i++) to[i] = number(from[i]);
  }
  static KM_HOT void same(I value, T* to, i64 n) {
    const T one = number(value);
    for (i64 i = 0; i < n; i++) to[i] = one;
  }

  // Each element counts those before it: smaller ones, and equal ones that stand in front.
  template <int W> static KM_HOT void ranks(const I* from, i64 n, T* to) {
    alignas(64) I x[W * lanes], rank[W * lanes], sorted[W * lanes];
    for (i64 i = 0; i < W * lanes; i++) x[i] = largest;
    __builtin_memcpy(x, from, (usize)n * sizeof(I));
    vector v[W], r[W], index;
    for (i64 i = 0; i < lanes; i++) index[i] = (I)i;
    KM_UNROLL_ALL
    for (int w = 0; w < W; w++) {
      __builtin_memcpy(&v[w], x + w * lanes, 64);
      r[w] = vector{};
    }
    KM_UNROLL_ALL
    for (int s = 0; s < W; s++)
      for (i64 l = 0; l < lanes; l++) {
        const vector one = vector{} + x[s * lanes + l];
        KM_UNROLL_ALL
        for (int w = 0; w < W; w++) {
          if (w < s)
            r[w] -= (vector)(one < v[w]);
          else if (w > s)
            r[w] -= (vector)(one <= v[w]);
          else
            r[w] -= (vector)(one < v[w]) | ((vector)(one == v[w]) & (vector)(index > (I)l));
        }
      }
    KM_UNROLL_ALL
    for (int w = 0; w < W; w++) __builtin_memcpy(rank + w * lanes, &r[w], 64);
    for (i64 i = 0; i < W * lanes; i++) sorted[rank[i]] = x[i];
    for (i64 i = 0; i < n; i++) to[i] = number(sorted[i]);
  }
  static KM_INL void few(const I* from, i64 n, T* to) {
    if (n <= lanes)
      ranks<1>(from, n, to);
    else if (n <= 2 * lanes)
      ranks<2>(from, n, to);
    else
      ranks<4>(from, n, to);
  }
  template <int Samples> static KM_COLD I middle(const I* x, i64 n) {
    I sample[Samples];
    for (int i = 0; i < Samples; i++) {
      const I value = x[n * (2 * i + 1) / (2 * Samples)];
      int j = i;
      for (; j > 0 && value < sample[j - 1]; j--) sample[j] = sample[j - 1];
      sample[j] = value;
    }
    return sample[Samples / 2];
  }
  // Where pivots keep splitting badly.
  static KM_COLD void merged(I* source, I* target, i64 n, T* to) {
    const own_less<I, false> less{};
    sort_runs(source, target, n, less);
    for (i64 width = 8; width < n; width *= 2) {
      I* swapped = source;
      source = target;
      target = swapped;
      for (i64 i = 0; i < n; i += 2 * width) {
        const i64 half = smaller(width, n - i), both = smaller(2 * width, n - i);
        merge_two(source + i, half, source + i + half, both - half, target + i, less);
      }
    }
    numbers(target, to, n);
  }
  // Sorts what lies in one buffer, beside which the other is free.  Results lie over one of them.
  static KM_COLD void alone(I* source, I* target, i64 n, T* to, int left) {
    while (n > leaf) {
      if (left-- <= 0) return merged(source, target, n, to);
      I pivot = n < 1024 ? middle<5>(source, n) : middle<17>(source, n);
      i64 below = parts::count(source, n, pivot);
      if (!below) {  // it is the smallest: its equals are done
        below = pivot == largest ? n : parts::count(source, n, pivot + 1);
        if (below < n) parts::move(source, n, pivot + 1, target, target + below, below);
        source += below;
        target += below;
        same(pivot, to, below);
        if (below == n) return;
      } else {
        parts::move(source, n, pivot, target, target + below, below);
        if (below < n - below) {
          alone(target, source, below, to, left);
          source += below, target += below, to += below, n -= below;
        } else {
          alone(target + below, source + below, n - below, to + below, left);
          n = below;
        }
        I* swapped = source;
        source = target;
        target = swapped;
        continue;
      }
      to += below;
      n -= below;
      I* swapped = source;
      source = target;
      target = swapped;
    }
    if (n > 0) few(source, n, to);
  }

  struct Range {
    i64 begin, n;
    int buffer;
    bool whole;
  };
  static constexpr int most = 64;
  static constexpr i64 smallest_part = 1 << 14;
  // Splits by all threads until there is a part for each several times over.
  static KM_COLD int split_all(const Job& job, i64 n, Range* range) {
    int count = 1;
    range[0] = Range{0, n, 0, false};
    const int wanted = job.call->threads > 1 ? (int)smaller((i64)job.call->threads * 8, i64(most)) : 1;
    while (count < wanted) {
      int best = -1;
      for (int k = 0; k < count; k++)
        if (!range[k].whole && (best < 0 || range[k].n > range[best].n)) best = k;
      if (best < 0 || range[best].n < smallest_part) break;
      Range& r = range[best];
      const I* source = job.buffer[r.buffer] + r.begin;
      const I pivot = middle<65>(source, r.n);
      const i64 below = parts::split(job.call, source, r.n, job.buffer[r.buffer ^ 1] + r.begin, pivot);
      if (!below) {
        r.whole = true;
        continue;
      }
      r.buffer ^= 1;
      range[count++] = Range{r.begin + below, r.n - below, r.buffer, false};
      r.n = below;
    }
    return count;
  }
#endif
  static KM_COLD void run(const Call* call) {
#if defined(__AVX512F__) && defined(__AVX512DQ__)
    const i64 n = call->shape[0];
    const T* x = (const T*)call->operands[0].data;
    Pieces pieces{(char*)call->workspace};
    T* out = (T*)call->operands[1].data;
    const Job job{call, out, {pieces.template take<I>(n), (I*)out}};
    constexpr i64 part = 1 << 14;
    auto load = [&](i64 low, i64 high) {
      integers(x + low * part, job.buffer[0] + low * part, smaller(high * part, n) - low * part);
    };
    for_tasks(call, ceil_div(n, part), load);
    Range range[most];
    const int count = split_all(job, n, range);
    auto body = [&](i64 low, i64 high) {
      for (i64 k = low; k < high; k++) {
        const Range& r = range[k];
        alone(job.buffer[r.buffer] + r.begin, job.buffer[r.buffer ^ 1] + r.begin, r.n, out + r.begin, 64);
      }
    };
    for_tasks(call, count, body);
    *(i64*)call->operands[2].data = 1;
#else
    *(i64*)call->operands[2].data = 0;
#endif
  }
};

}  // namespace km
