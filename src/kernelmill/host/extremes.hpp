// extremes.hpp - where the least or greatest element of contiguous sequences is: the first of equal
// ones, the first NaN where there is one.  Other layouts are reduced as pairs, see
// algorithms/extremes.py.
//
//   km::extremes<km::fold::minimum<T>, T, Stored>::run(call);
//
// Elements are Stored and compared as T.  Dimensions: kept ones (flags bits 8-15 say how many), then
// the sequence.  Operands: the elements, and the places as i64.  Workspace: where a sequence has
// more than one piece, 16 bytes for each piece of each.
#pragma once
#include "fold.hpp"
#include "layout.hpp"

namespace km {

template <class A, class B> constexpr bool is_stored = false;
template <class A> constexpr bool is_stored<A, A> = true;

template <class F, class T, class Stored> struct extremes {
  // Whether registers of elements are compared: bools as the bytes that they are.
  static constexpr bool bytes = is_stored<Stored, bool>, plain = bytes || is_stored<T, Stored>;
  static constexpr i64 block = 2048, piece = 16384, task = 16384, kept_bits = 8;
  static constexpr i64 lanes = KM_VECTOR_BYTES / (i64)sizeof(T), some = 4;

  struct best {
    T value;
    i64 at;
  };
  typedef T vector __attribute__((vector_size(KM_VECTOR_BYTES)));

  static KM_INL vector load(const char* from) {
    vector v;
    __builtin_memcpy(&v, from, sizeof(v));
    return v;
  }
  static KM_INL T one(const char* x, i64 i) { return (T)element<Stored>::load(x + i * (i64)sizeof(Stored)); }
  // Of n > 0 elements; NaN where one is.
  static KM_HOT T extreme_of(const char* x, i64 n) {
    const F f{};
    T found = one(x, 0);
    i64 i = 1;
    if constexpr (plain) {
      if (n >= some * lanes) {
        vector a[some];
        for (i64 k = 0; k < some; k++) a[k] = load(x + k * (i64)sizeof(vector));
        for (i = some * lanes; i + some * lanes <= n; i += some * lanes)
          for (i64 k = 0; k < some; k++)
            a[k] = f.vec(a[k], load(x + i * (i64)sizeof(T) + k * (i64)sizeof(vector)));
        a[0] = f.vec(f.vec(a[0], a[1]), f.vec(a[2], a[3]));
        T each[lanes];
        __builtin_memcpy(each, a, sizeof(each));
        found = each[0];
        for (i64 k = 1; k < lanes; k++) found = f(found, each[k]);
        if (bytes) found = (T)(found != (T)0);
      }
    }
    for (; i < n; i++) found = f(found, one(x, i));
    return found;
  }
  static KM_HOT i64 first_equal(const char* x, i64 n, T wanted) {
    if constexpr (plain) {
      // Whole blocks first, whose comparison needs no way out.
      constexpr i64 step = 64;
      for (i64 i = 0; i + step <= n; i += step) {
        u32 any = 0;
        for (i64 k = 0; k < step; k++) {
          const T v = one(x, i + k);
          any |= (v == wanted) | ((v != v) & (wanted != wanted));
        }
        if (any) {
          for (i64 k = i; k < i + step; k++)
            if (is(one(x, k), wanted)) return k;
        }
        if (i + 2 * step > n) return i + step + rest(x + (i + step) * (i64)sizeof(T), n - i - step, wanted);
      }
    }
    return rest(x, n, wanted);
  }
  static KM_INL bool is(T v, T wanted) { return v == wanted || (v != v && wanted != wanted); }
  static KM_INL i64 rest(const char* x, i64 n, T wanted) {
    for (i64 i = 0; i < n; i++)
      if (is(one(x, i), wanted)) return i;
    return 0;
  }
  // Whether b, which comes later, is the one to take.
  static KM_INL bool later(T a, T b) {
    const T both = F{}(a, b);
    return a == a && (b != b || (both == b && both != a));
  }
  // Of n > 0 elements, the first of which is number `base`.
  static KM_COLD best of_piece(const char* x, i64 n, i64 base) {
    T found = extreme_of(x, smaller(n, block));
    i64 at = 0;
    for (i64 i = block; i < n && found == found; i += block) {
      const T next = extreme_of(x + i * (i64)sizeof(Stored), smaller(n - i, block));
      if (later(found, next)) found = next, at = i;
    }
    const i64 in = first_equal(x + at * (i64)sizeof(Stored), smaller(n - at, block), found);
    return best{found, base + at + in};
  }

  struct Job {
    const Call* call;
    int kept;
    i64 rows, n, pieces, group;
    best* parts;

    KM_COLD explicit Job(const Call* c) : call(c) {
      kept = (int)(c->flags >> kept_bits & 255);
      rows = extent_of(c, 0, kept);
      n = extent_of(c, kept, c->ndim);
      pieces = ceil_div(n, piece);
      group = larger(i64(1), task / smaller(n, piece));
      parts = (best*)c->workspace;
    }
    KM_INL i64 units() const { return rows * pieces; }
    KM_INL void store(i64 row, i64 at) const {
      char* p[2] = {call->operands[0].data, call->operands[1].data};
      seek<2>(call, 0, kept, row, p);
      element<i64>::store(p[1], at);
    }
    KM_COLD void operator()(i64 begin, i64 end) const {
      const i64 stop = smaller(end * group, units());
      for (i64 unit = begin * group; unit < stop; unit++) {
        const i64 row = unit / pieces, low = unit % pieces * piece;
        char* p[2] = {call->operands[0].data, call->operands[1].data};
        seek<2>(call, 0, kept, row, p);
        const best found = of_piece(p[0] + low * (i64)sizeof(Stored), smaller(n - low, piece), low);
        if (pieces == 1)
          element<i64>::store(p[1], found.at);
        else
          __builtin_memcpy((char*)parts + unit * 16, &found, sizeof(found));
      }
    }
    KM_COLD void finish() const {
      for (i64 row = 0; row < rows; row++) {
        best found = part(row * pieces);
        for (i64 k = 1; k < pieces; k++) {
          const best next = part(row * pieces + k);
          if (later(found.value, next.value)) found = next;
        }
        store(row, found.at);
      }
    }
    KM_INL best part(i64 unit) const {
      best found;
      __builtin_memcpy(&found, (const char*)parts + unit * 16, sizeof(found));
      return found;
    }
  };

  static KM_INL void run(const Call* call) {
    static_assert(sizeof(best) == 16, "pieces have 16 bytes each");
    Job job(call);
    for_tasks(call, ceil_div(job.units(), job.group), job);
    if (job.pieces > 1) job.finish();
  }
};

}  // namespace km
