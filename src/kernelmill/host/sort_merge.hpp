// sort_merge.hpp - stable merge sort by any operator, and merging of two sorted arrays; orders are in sort_keys.hpp.
//
//   km::merge_sort<T, Index, Offset>::rows(call, less)       rows of one length, shape is (rows, length)
//   km::merge_sort<T, Index, Offset>::segments(call, less)   between offsets, the last input; shape is (segments)
//   km::merge_sorted<T, source>::run(call, less)             operands a, b; shape is (of a, of b)
//
// Operands: elements; then the sorted ones where Index is km::nothing, else the sorted ones and the places they came
// from, or the places only where `flags` has 2.  All are contiguous.  An operator that is no order gives some
// permutation: no read depends on its answers but those between two bounds.
#pragma once
#include "sort_keys.hpp"

namespace km {

struct nothing_beside {};

template <class T, class Index> struct Numbered {
  T value;
  Index index;
};

// The address of `b` where `second` is set, else of `a`: a choice of values would be a branch nobody can predict.
template <class T> KM_INL const T* one_of(const T* a, const T* b, u64 second) {
  return (const T*)((uptr)a ^ (((uptr)a ^ (uptr)b) & (uptr)(-(i64)second)));
}

template <class T, class Less>
KM_HOT void merge_forward(const T* a, const T* a_end, const T* b, const T* b_end, T* to, const Less& less) {
  while (a < a_end && b < b_end) {
    const u64 second = less(b, a);
    *to++ = *one_of(a, b, second);
    b += second;
    a += second ^ 1;
  }
  while (a < a_end) *to++ = *a++;
  while (b < b_end) *to++ = *b++;
}

// From both ends at once, two chains that do not wait for each other, as long as no side can run dry.
template <class T, class Less>
KM_HOT void merge_two(const T* a, i64 na, const T* b, i64 nb, T* to, const Less& less) {
  if (!nb || !na || !less(b, a + na - 1)) {  // in order already
    __builtin_memcpy((void*)to, a, (usize)na * sizeof(T));
    __builtin_memcpy((void*)(to + na), b, (usize)nb * sizeof(T));
    return;
  }
  const i64 sure = smaller(na, nb);
  const T *front_a = a, *front_b = b, *back_a = a + na - 1, *back_b = b + nb - 1;
  T *front = to, *back = to + na + nb - 1;
  for (i64 i = 0; i < sure; i++) {
    const u64 second = less(front_b, front_a);
    *front++ = *one_of(front_a, front_b, second);
    front_b += second;
    front_a += second ^ 1;
    const u64 first = less(back_b, back_a);
    *back-- = *one_of(back_b, back_a, first);
    back_a -= first;
    back_b -= first ^ 1;
  }
  if (KM_UNLIKELY(front_a > back_a + 1 || front_b > back_b + 1))  // no order: both ends took the same
    merge_forward(a, a + na, b, b + nb, to, less);
  else
    merge_forward(front_a, back_a + 1, front_b, back_b + 1, front, less);
}

// How many of the first k of two merged arrays are of the first one.
template <class T, class Less> KM_COLD i64 of_first(const T* a, i64 na, const T* b, i64 nb, i64 k, const Less& less) {
  i64 low = larger(k - nb, i64(0)), high = smaller(k, na);
  while (low < high) {
    const i64 middle = low + (high - low) / 2;
    if (less(b + (k - 1 - middle), a + middle))
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

constexpr i64 most_splits = 64;

// Calls each(first of a, of b, how many of a, of b, where to) for parts that make the whole, side by side.
template <class T, class Less, class Each>
KM_COLD void merge_parts(const Call* call, const T* a, i64 na, const T* b, i64 nb, const Less& less, Each& each) {
  const i64 n = na + nb, parts = clamp(smaller((i64)call->threads * 2, n >> 12), 1, most_splits);
  i64 split[most_splits + 1], at[most_splits + 1];
  for (i64 p = 0; p <= parts; p++) at[p] = n * p / parts;
  split[0] = 0;
  split[parts] = na;
  for (i64 p = 1; p < parts; p++)  // an operator that is no order must not make a part negative
    split[p] = clamp(of_first(a, na, b, nb, at[p], less), split[p - 1], split[p - 1] + at[p] - at[p - 1]);
  for (i64 p = parts - 1; p > 0; p--)
    split[p] = clamp(split[p], split[p + 1] - (at[p + 1] - at[p]), split[p + 1]);
  auto body = [&](i64 low, i64 high) {
    for (i64 p = low; p < high; p++) {
      const i64 i = split[p], j = at[p] - i;
      each(i, j, split[p + 1] - i, at[p + 1] - split[p + 1] - j, at[p]);
    }
  };
  for_tasks(call, parts, body);
}

// ---- sort

// Sorts runs of eight from one array to another: by rank, without branches.
template <class T, class Less> KM_HOT void sort_runs(const T* from, T* to, i64 n, const Less& less) {
  i64 at = 0;
  for (; at + 8 <= n; at += 8) {
    const T* x = from + at;
    int rank[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    KM_UNROLL_ALL
    for (int i = 0; i < 8; i++)
      KM_UNROLL_ALL
      for (int j = i + 1; j < 8; j++) {
        const int second = less(x + j, x + i);
        rank[i] += second;
        rank[j] += second ^ 1;
      }
    u32 taken = 0;
    for (int i = 0; i < 8; i++) taken |= 1u << rank[i];
    for (int i = 0; i < 8; i++) to[at + (KM_LIKELY(taken == 255) ? rank[i] : i)] = x[i];
  }
  const i64 begin = at;
  for (; at < n; at++) {
    i64 j = at;
    while (j > begin && less(from + at, to + j - 1)) {
      to[j] = to[j - 1];
      j--;
    }
    to[j] = from[at];
  }
}

template <class T> constexpr i64 block_elements = larger(i64(64), i64(1 << 17) / (i64)sizeof(T));

// By all threads.  `load(begin, end, to)` puts elements into an array, which may be the spare.
template <class T, class Less, class Load>
KM_COLD void sort_together(const Call* call, i64 n, T* to, T* spare, const Less& less, Load& load) {
  constexpr i64 block = block_elements<T>;
  int levels = 0;
  for (i64 width = block; width < n; width *= 2) levels++;
  T *source = levels & 1 ? spare : to, *target = levels & 1 ? to : spare;
  auto blocks = [&](i64 low, i64 high) {
    for (i64 k = low; k < high; k++) {
      const i64 at = k * block, size = smaller(block, n - at);
      int inner = 0;
      for (i64 width = 8; width < size; width *= 2) inner++;
      T *first = inner & 1 ? target : source, *other = inner & 1 ? source : target;
      load(at, at + size, other + at);
      sort_runs(other + at, first + at, size, less);
      for (i64 width = 8; width < size; width *= 2) {
        for (i64 i = at; i < at + size; i += 2 * width) {
          const i64 half = smaller(width, at + size - i), both = smaller(2 * width, at + size - i);
          merge_two(first + i, half, first + i + half, both - half, other + i, less);
        }
        T* swapped = first;
        first = other;
        other = swapped;
      }
    }
  };
  for_tasks(call, ceil_div(n, block), blocks);
  for (i64 width = block; width < n; width *= 2) {
    const i64 pairs = ceil_div(n, 2 * width);
    auto merge = [&](i64 low, i64 high) {
      for (i64 p = low; p < high; p++) {
        const i64 i = p * 2 * width, half = smaller(width, n - i), both = smaller(2 * width, n - i);
        merge_two(source + i, half, source + i + half, both - half, target + i, less);
      }
    };
    if (pairs >= 4 * call->threads)
      for_tasks(call, pairs, merge);
    else
      for (i64 p = 0; p < pairs; p++) {
        const i64 i = p * 2 * width, half = smaller(width, n - i), both = smaller(2 * width, n - i);
        const T *a = source + i, *b = source + i + half;
        auto part = [&](i64 in_a, i64 in_b, i64 of_a, i64 of_b, i64 at) {
          merge_two(a + in_a, of_a, b + in_b, of_b, target + i + at, less);
        };
        merge_parts(call, a, half, b, both - half, less, part);
      }
    T* swapped = source;
    source = target;
    target = swapped;
  }
}

// Index is `nothing_beside`, or the type that counts elements; Offset that of offsets.
template <class T, class Index, class Offset> struct merge_sort {
  static constexpr bool numbered = !__is_same(Index, nothing_beside);
  template <bool N, class D> struct item_of { typedef Numbered<T, Index> type; };
  template <class D> struct item_of<false, D> { typedef T type; };
  typedef typename item_of<numbered, void>::type Item;
  static constexpr i64 together_from = 1 << 14;

  template <class Less> struct item_less {
    const Less& less;
    KM_INL bool operator()(const Item* a, const Item* b) const { return less((const T*)a, (const T*)b); }
  };
  struct Job {
    const Call* call;
    const T* from;
    T* sorted;   // null where only places are wanted
    i64* place;  // null where they are not
    Item *to, *spare;
  };
  static KM_COLD Job job_of(const Call* call, i64 elements, int inputs) {
    Pieces pieces{(char*)call->workspace};
    Job job{call, (const T*)call->operands[0].data, nullptr, nullptr, nullptr, nullptr};
    const bool places_only = call->flags & 2;
    if (!places_only) job.sorted = (T*)call->operands[inputs].data;
    if constexpr (numbered) {
      job.place = (i64*)call->operands[inputs + !places_only].data;
      job.to = pieces.take<Item>(elements);
    } else
      job.to = (Item*)job.sorted;
    job.spare = pieces.take<Item>(elements);
    return job;
  }
  // Elements from `begin` on, numbered from `base`; places are told behind `shift`.
  static KM_HOT void load(const Job& job, i64 base, i64 begin, i64 end, Item* to) {
    if constexpr (numbered)
      for (i64 i = begin; i < end; i++) to[i - begin] = Item{job.from[i], (Index)(i - base)};
    else
      __builtin_memcpy((void*)to, job.from + begin, (usize)(end - begin) * sizeof(T));
  }
  static KM_HOT void unload(const Job& job, i64 begin, i64 end, i64 shift) {
    if constexpr (numbered)
      for (i64 i = begin; i < end; i++) {
        if (job.sorted) job.sorted[i] = job.to[i].value;
        job.place[i] = shift + (i64)job.to[i].index;
      }
    (void)job, (void)begin, (void)end, (void)shift;
  }
  template <class Less> static KM_COLD void one(const Job& job, i64 begin, i64 end, i64 shift, const Less& less) {
    const i64 n = end - begin;
    int levels = 0;
    for (i64 width = 8; width < n; width *= 2) levels++;
    Item *source = levels & 1 ? job.spare : job.to, *target = levels & 1 ? job.to : job.spare;
    load(job, begin, begin, end, target + begin);
    sort_runs(target + begin, source + begin, n, less);
    for (i64 width = 8; width < n; width *= 2) {
      for (i64 i = begin; i < end; i += 2 * width) {
        const i64 half = smaller(width, end - i), both = smaller(2 * width, end - i);
        merge_two(source + i, half, source + i + half, both - half, target + i, less);
      }
      Item* swapped = source;
      source = target;
      target = swapped;
    }
    unload(job, begin, end, shift);
  }
  template <class Less> static KM_COLD void all(const Job& job, i64 begin, i64 n, i64 shift, const Less& less) {
    auto load_part = [&](i64 low, i64 high, Item* to) { load(job, begin, begin + low, begin + high, to); };
    sort_together(job.call, n, job.to + begin, job.spare + begin, less, load_part);
    constexpr i64 part = 1 << 14;
    auto body = [&](i64 low, i64 high) { 
      unload(job, begin + low * part, begin + smaller(high * part, n), shift);
    };
    if constexpr (numbered) for_tasks(job.call, ceil_div(n, part), body);
  }

  template <class Less> static KM_COLD void rows(const Call* call, const Less& given) {
    const i64 count = call->shape[0], n = call->shape[1];
    const item_less<Less> less{given};
    const Job job = job_of(call, count * n, 1);
    if (n >= together_from && (count < call->threads || n * (i64)sizeof(Item) > (1 << 20))) {
      for (i64 r = 0; r < count; r++) all(job, r * n, n, 0, less);
      return;
    }
    auto body = [&](i64 low, i64 high) {
      for (i64 r = low; r < high; r++) one(job, r * n, (r + 1) * n, 0, less);
    };
    for_tasks(call, count, body);
  }
  // Offsets ascend within the elements: the caller has looked at them.
  template <class Less> static KM_COLD void segments(const Call* call, const Less& given) {
    const i64 count = call->shape[0], elements = call->flags >> 2;
    const item_less<Less> less{given};
    const Job job = job_of(call, elements, 2);
    auto offset = [&](i64 i) {
      return (i64)element<Offset>::load(call->operands[1].data + i * (i64)sizeof(Offset));
    };
    const i64 share = clamp(count * 32768 / larger(elements, i64(1)), 1, 4096);
    auto body = [&](i64 low, i64 high) {
      for (i64 i = low * share; i < smaller(high * share, count); i++) {
        const i64 begin = offset(i), end = offset(i + 1);
        if (end > begin && (end - begin < 4 * together_from || call->threads < 2)) one(job, begin, end, begin, less);
      }
    };
    for_tasks(call, ceil_div(count, share), body);
    if (call->threads < 2) return;
    for (i64 i = 0; i < count; i++) {
      const i64 begin = offset(i), n = offset(i + 1) - begin;
      if (n >= 4 * together_from) all(job, begin, n, begin, less);
    }
  }
};

// ---- merge

template <class T, bool Source> struct merge_sorted {
  template <class Less> static KM_COLD void run(const Call* call, const Less& less) {
    const i64 na = call->shape[0], nb = call->shape[1];
    const T *a = (const T*)call->operands[0].data, *b = (const T*)call->operands[1].data;
    T* to = (T*)call->operands[2].data;
    i64* source = Source ? (i64*)call->operands[3].data : nullptr;
    auto part = [&](i64 i, i64 j, i64 of_a, i64 of_b, i64 at) {
      if constexpr (Source)
        with_source(a, i, i + of_a, b, j, j + of_b, na, to + at, source + at, less);
      else
        merge_two(a + i, of_a, b + j, of_b, to + at, less);
    };
    merge_parts(call, a, na, b, nb, less, part);
  }
  template <class Less>
  static KM_HOT void with_source(const T* a, i64 i, i64 i_end, const T* b, i64 j, i64 j_end, i64 na, T* to,
                                 i64* source, const Less& less) {
    while (i < i_end && j < j_end) {
      const i64 second = less(b + j, a + i);
      *to++ = *one_of(a + i, b + j, (u64)second);
      *source++ = second ? na + j : i;
      j += second;
      i += second ^ 1;
    }
    for (; i < i_end; i++) *to++ = a[i], *source++ = i;
    for (; j < j_end; j++) *to++ = b[j], *source++ = na + j;
  }
};

}  // namespace km
