// places.hpp - into which bin of a histogram a value falls: even bins as np.histogram has them, bins
// between given edges, and values that are bins themselves.  Header-free, for the host and, included
// by device/histogram.cuh, for devices; loops and counters are in the families' own files.
#pragma once
#include "base.hpp"

namespace km {

// Values are compared, and even bins computed, in the type of the edges; half precision is computed in
// float32 and rounded after each operation, which gives the bits of half precision itself.
template <class E> struct measure {
  typedef E word;
  static KM_INL word rounded(word x) { return x; }
};
template <> struct measure<f16> {
  typedef f32 word;
  static KM_INL word rounded(word x) { return (f32)f16(x); }
};
template <> struct measure<bf16> {
  typedef f32 word;
  static KM_INL word rounded(word x) { return (f32)bf16(x); }
};
template <class C, class T> KM_INL C measured(T x) { return (C)x; }
#ifdef __CUDA_ARCH__
// A whole number of up to 32 bits as float64, by its bits and a subtraction: conversions are slow.
template <class C> KM_INL C measured(i32 x) {
  if constexpr (sizeof(C) == 8 && (C)0.5 != (C)0)
    return bit_cast<f64>(0x4330000080000000ul ^ (u64)(u32)x) - 4503601774854144.0;
  else
    return (C)x;
}
template <class C> KM_INL C measured(u32 x) {
  if constexpr (sizeof(C) == 8 && (C)0.5 != (C)0)
    return bit_cast<f64>(0x4330000000000000ul | (u64)x) - 4503599627370496.0;
  else
    return (C)x;
}
template <class C> KM_INL C measured(i16 x) { return measured<C>((i32)x); }
template <class C> KM_INL C measured(u16 x) { return measured<C>((u32)x); }
#endif
template <class C> KM_INL C measured(f16 x) { return (C)(f32)x; }
template <class C> KM_INL C measured(bf16 x) { return (C)(f32)x; }

KM_INL f32 magnitude(f32 x) { return __builtin_fabsf(x); }
KM_INL f64 magnitude(f64 x) { return __builtin_fabs(x); }

// What a call passes for each channel: `scale` is bins / width, `slack` how far from the edges of a bin a
// quotient is sure, 1 where it never is.  `bias` moves whole numbers away from edges that are whole too:
// 0.5 where all of them are.  `first` and `last` bound what is counted, `last` itself where
// the bins are `closed`.
struct Bins {
  f64 start, step, first, last, width, scale, slack, bias;
  i64 bins, closed;
};

constexpr i32 no_bin = -1;

// Even bins of values of type T between edges of type E, which are computed in type D as np.linspace does;
// NumPy has quotients in type Q.
template <class T, class E, class D, class Q> struct even_bins {
  typedef T value;
  typedef typename measure<E>::word C;
  typedef typename measure<D>::word CD;
  typedef typename measure<Q>::word CQ;
  C start, first, last, scale, slack, bias;
  CD from, step;
  CQ width, numerator;
  i32 bins;
  bool closed, exact;

  KM_INL even_bins(const Bins& b, const char*)
      : start((C)b.start), first((C)b.first), last((C)b.last), scale((C)b.scale), slack((C)b.slack), bias((C)b.bias),
        from((CD)b.start), step((CD)b.step), width((CQ)b.width),
        numerator(measure<Q>::rounded((CQ)b.bins)), bins((i32)b.bins), closed(b.closed != 0),
        exact(b.slack >= 0.5) {}

  KM_INL C edge(i32 i) const {
    const CD at = measure<D>::rounded(measure<D>::rounded(measure<D>::rounded((CD)i) * step) + from);
    return i >= bins ? last : measure<E>::rounded((C)at);
  }
  KM_INL bool holds(C a) const { return (a >= first) & ((a < last) | (closed & (a == last))); }
  KM_INL i32 within(i32 k) const { return k < 0 ? 0 : (k > bins - 1 ? bins - 1 : k); }
  // As NumPy does it: the quotient, then a step by the edges beside it.
  KM_INL i32 by_quotient(C a) const {
    const CQ far = (CQ)measure<E>::rounded(a - start);
    const CQ at = measure<Q>::rounded(measure<Q>::rounded(far / width) * numerator);
    i32 k = within(at < numerator ? (i32)at : bins - 1);
    if (k > 0 && a < edge(k)) k--;
    else if (k < bins - 1 && a >= edge(k + 1)) k++;
    return k;
  }
  // The same wherever that step is enough: on which side of the nearest edge.
  KM_INL i32 by_edge(C a) const {
    const i32 k = (i32)((a - start) * scale + (C)0.5);
    return within(k - (a < edge(k) ? 1 : 0));
  }
  KM_INL i32 place(T x) const {
    const C a = measured<C>(x);
    if (!holds(a)) return no_bin;
    return exact ? by_quotient(a) : by_edge(a + bias);
  }
  // Without a branch, for bins that are not `exact`.
  KM_INL i32 place_near(T x) const {
    const C a = measured<C>(x);
    const bool in = holds(a);
    const i32 k = by_edge((in ? a : first) + bias);
    return in ? k : no_bin;
  }
  // The bin where the quotient is far from edges, or a number that is none of a bin; returns whether it is
  // sure.  Conversions are slow on devices, so a sum with `whole` ends at the nearest integer, which is then in
  // its lowest bits; quotients that are no bin leave other bits there.  The last edge may lie behind all bins.
  KM_INL bool place_sure(T x, i32& k) const {
    constexpr C whole = sizeof(C) == 4 ? (C)12582912.0 : (C)6755399441055744.0;
    const C at = (measured<C>(x) - (start - bias)) * scale - (C)0.5, near = at + whole;
    const C rest = at - (near - whole), sure = (C)0.5 - slack;
    if constexpr (sizeof(C) == 4) k = (i32)(bit_cast<u32>(near) - bit_cast<u32>(whole));
    else k = near < whole + (C)4294967296.0 ? (i32)((u32)bit_cast<u64>(near) - (u32)bit_cast<u64>(whole)) : -1;
    return (magnitude(rest) < sure) & (k != bins);
  }
};

// Bins between edges that are given, in ascending order; values and edges are compared as C.
template <class T, class E, class C> struct edged_bins {
  typedef T value;
  const char* edges;
  C first, last;
  i32 bins;
  bool closed;
  static constexpr bool exact = true;

  KM_INL edged_bins(const Bins& b, const char* at)
      : edges(at), bins((i32)b.bins), closed(b.closed != 0) {
    first = edge(0);
    last = edge(bins);
  }
  KM_INL C edge(i32 i) const { return measured<C>(element<E>::load(edges + i * (i64)sizeof(E))); }
  KM_INL i32 place(T x) const {
    const C a = measured<C>(x);
    if (!((a >= first) & ((a < last) | (closed & (a == last))))) return no_bin;
    i32 low = 0;
    for (i32 n = bins; n > 1;) {  // the last edge that is not greater, of all but the last one
      const i32 half = n / 2;
      low += edge(low + half) <= a ? half : 0;
      n -= half;
    }
    return low;
  }
  KM_INL i32 place_near(T x) const { return place(x); }
  KM_INL bool place_sure(T x, i32& k) const {
    k = place(x);
    return true;
  }
};

// Values that are the number of their bin.
template <class T> struct own_bins {
  typedef T value;
  static constexpr bool exact = false;
  i32 bins;
  KM_INL own_bins(const Bins& b, const char*) : bins((i32)b.bins) {}
  KM_INL i32 place(T x) const { return (u64)(i64)x < (u64)bins ? (i32)x : no_bin; }
  KM_INL i32 place_near(T x) const { return place(x); }
  KM_INL bool place_sure(T x, i32& k) const {
    k = place(x);
    return true;
  }
};

}  // namespace km
