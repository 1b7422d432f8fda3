// reduce_call.cuh - what all reductions on a device share: the record of a call, accumulators of several folds, elements of a
// sequence, results, and partial results of several blocks.  How threads go over a sequence is in reduce_rows.cuh,
// reduce_columns.cuh and reduce_ordered.cuh.
//
//   typedef km::reduction<Map, km::in<km::arg<T, pattern>...>, km::folds<km::fold_at<K, Fold>...>,
//                         Outputs, Captured, Bytes, N> Pass;
//
// A sequence is what one result is made of.  `Map` gives one value for all folds, or a tuple of one for each of the `Outputs`;
// fold K takes value K and stores result K.  A fold has types `acc` and `out`, a number of `lanes`, is called with two
// accumulators, and has `finish(acc) -> out`.  `Captured` bytes of captured scalars lie before the operands given by value.
// Passes N = 0, 1 ... of one kernel, over the same units, have their parts `apart` bytes from each other.
#pragma once
#include "block.cuh"
#include "operands.cuh"

namespace km {

// What a launch passes, by value.  Strides in bytes; dimensions outermost first: `kept` kept ones, the reduced ones, and for
// columns a kept one.  A unit is a sequence of `length` elements, or several columns of them; it is cut into `pieces` of
// `piece` elements.  `parts` and `tickets` are for several pieces only; tickets are zero before a launch and after it.
template <int Operands, int Bytes>
struct ReduceCall {
  __align__(16) char captures[Bytes];
  char* data[Operands];
  i64 elements, ndim, shape[max_dims], strides[Operands][max_dims];
  char* parts;
  u32* tickets;
  i64 kept, length, units, pieces, piece, apart;
};

// What a map of the caller's derives from, and the map that hands the one input to every fold.
struct mapped {
  static constexpr bool plain = false;
};
template <class T>
struct same {
  static constexpr bool plain = true;
  KM_INL explicit same(const char*) {}
  KM_INL T operator()(T a) const { return a; }
};

template <int K, class F>
struct fold_at {
  typedef F fold;
  typedef typename F::acc acc;
  static constexpr int at = K, lanes = F::lanes;
};
template <class... F> struct folds {};

// Quotients of 64 bits are rare, and long.
KM_COLD i64 far_quotient(i64 a, i64 b) { return (i64)((u64)a / (u64)b); }
KM_INL i64 quotient(i64 a, i64 b) {
  return KM_LIKELY(((u64)(a | b) >> 32) == 0) ? (i64)((u32)a / (u32)b) : far_quotient(a, b);
}

// One accumulator for each fold; one of each fold.
template <int J, class A> struct cell { A value; };
template <class Is, class... A> struct cells_of;
template <int... J, class... A>
struct cells_of<indices<J...>, A...> : cell<J, A>... {};
template <class... A> struct cells : cells_of<indices_of<(int)sizeof...(A)>, A...> {};
template <int J, class A> KM_INL A& at(cell<J, A>& c) { return c.value; }
template <int J, class A> KM_INL const A& at(const cell<J, A>& c) { return c.value; }

template <int J, class F>
struct held {
  F fold;
  KM_INL explicit held(const char* packed) : fold(packed) {}
};
template <int J, class F> KM_INL const F& fold_of(const held<J, F>& h) { return h.fold; }

template <class Is, class... F> struct bank_of;
template <int... J, class... F>
struct bank_of<indices<J...>, F...> : held<J, typename F::fold>... {
  typedef cells<typename F::acc...> state;
  KM_INL explicit bank_of(const char* packed) : held<J, typename F::fold>(packed)... {}
  KM_INL state operator()(const state& a, const state& b) const {
    state made;
    ((at<J>(made) = fold_of<J>(*this)(at<J>(a), at<J>(b))), ...);
    return made;
  }
};
template <class... F>
struct bank : bank_of<indices_of<(int)sizeof...(F)>, F...> {
  using bank_of<indices_of<(int)sizeof...(F)>, F...>::bank_of;
};

// Parts that come one after the other, combined as adjacent pairs: a binary counter of sums.
template <class State>
struct pile {
  State level[32];
  u64 count = 0;
  template <class F>
  KM_INL void push(State value, const F& fold) {
    int l = 0;
    _Pragma("unroll 1") for (; count >> l & 1; l++) value = fold(level[l], value);
    level[l] = value;
    count++;
  }
  template <class F>
  KM_INL State top(const F& fold) const {
    int l = 0;
    while (!(count >> l & 1)) l++;
    State value = level[l++];
    _Pragma("unroll 1") for (; count >> l; l++) if (count >> l & 1) value = fold(level[l], value);
    return value;
  }
};

// Combines the values of the lanes 0 .. count - 1 of each T neighbouring lanes as adjacent pairs; the result is that of the
// first one.
template <int T, class State, class F>
KM_INL State team_reduce(State value, const F& fold, i64 count) {
  const int lane = (int)lane_id() & (T - 1);
  KM_UNROLL_ALL for (int s = 1; s < T; s *= 2) {
    const State other = shuffle_down(value, s);
    if ((lane & (2 * s - 1)) == 0 && lane + s < count) value = fold(value, other);
  }
  return value;
}

template <class Map, class In, class Folds, int Outputs, int Captured, int Bytes, int N = 0> struct reduction;

template <class Map, class... I, class... F, int Outputs, int Captured, int Bytes, int N>
struct reduction<Map, in<I...>, folds<F...>, Outputs, Captured, Bytes, N> {
  typedef Map map_type;
  static constexpr int inputs = (int)sizeof...(I);
  typedef ReduceCall<inputs + Outputs, Bytes> call;
  typedef km::bank<F...> bank;
  typedef cells<typename F::acc...> state;
  typedef indices_of<inputs> every_input;
  typedef indices_of<(int)sizeof...(F)> every_fold;
  template <int Count> using taken = batch<state, Count>;

  static KM_INL constexpr int lanes_of(int j) {
    constexpr int each[] = {F::lanes...};
    return each[j];
  }
  // Where input k is, were it given by value.
  static KM_INL constexpr int value_at(int k) {
    constexpr bool given[] = {I::pattern == by_value...};
    int at = Captured;
    for (int j = 0; j < k; j++) at += given[j] ? value_slot : 0;
    return at;
  }

  // ---- places

  template <int Count>
  struct spots {
    const char* at[Count];
  };
  typedef spots<inputs> place;
  // Moves operands from .. from + Count - 1 by what an index in dimensions first .. last - 1 moves them.
  template <class Index, int Count>
  static KM_INL spots<Count> advance(const call& c, int from, int first, int last, Index rest, spots<Count> p) {
    if (first >= last) return p;
    _Pragma("unroll 1") for (int d = last - 1; d > first; d--) {
      const Index extent = (Index)c.shape[d], outer = rest / extent;
      const i64 here = (i64)(rest - outer * extent);
      rest = outer;
      KM_UNROLL_ALL for (int k = 0; k < Count; k++) p.at[k] += here * c.strides[from + k][d];
    }
    KM_UNROLL_ALL for (int k = 0; k < Count; k++) p.at[k] += (i64)rest * c.strides[from + k][first];
    return p;
  }
  template <int Count>
  static KM_COLD spots<Count> advance_far(const call& c, int from, int first, int last, i64 index, spots<Count> p) {
    return advance<u64>(c, from, first, last, (u64)index, p);
  }
  template <int Count>
  static KM_INL spots<Count> seek(const call& c, int from, int first, int last, i64 index, const spots<Count>& p) {
    if (KM_UNLIKELY((u64)index >> 32)) return advance_far(c, from, first, last, index, p);
    return advance<u32>(c, from, first, last, (u32)index, p);
  }
  // Where the inputs of a sequence begin.
  static KM_INL place sequence(const call& c, i64 row) {
    place p;
    KM_UNROLL_ALL for (int k = 0; k < inputs; k++) p.at[k] = c.data[k];
    return seek(c, 0, 0, (int)c.kept, row, p);
  }
  // Place i along a dimension, the innermost one or another; where neighbours are in it, the stride needs no look.
  template <bool Inner, int... K>
  static KM_INL place along(const call& c, place p, int dimension, i64 i, indices<K...>) {
    ((p.at[K] += i * (Inner && I::pattern == contiguous ? (i64)I::size : c.strides[K][dimension])), ...);
    return p;
  }
  // Element i of a sequence; `last` is the dimension after the reduced ones, of which the last is `Inner` or not.
  template <bool Nested, bool Inner = true>
  static KM_INL place element_of(const call& c, const place& row, int last, i64 i) {
    if constexpr (Nested) return seek(c, 0, (int)c.kept, last, i, row);
    else return along<Inner>(c, row, (int)c.kept, i, every_input());
  }

  // ---- elements

  // V neighbours of one input along the innermost dimension.
  template <class A, int V, int K>
  static KM_INL void take(const call& c, const char* from, int inner, typename A::type* to) {
    typedef typename A::type T;
    if constexpr (A::pattern == contiguous) {
      load_packets<T, V>(from, to);
    } else if constexpr (A::pattern == broadcast || A::pattern == by_value) {
      const T value = element<T>::load(A::pattern == by_value ? c.captures + value_at(K) : from);
      KM_UNROLL_ALL for (int v = 0; v < V; v++) to[v] = value;
    } else {
      KM_UNROLL_ALL for (int v = 0; v < V; v++) to[v] = A::access::load(from + v * c.strides[K][inner]);
    }
  }
  template <int... J, class Value>
  static KM_INL state spread(const Value& value, indices<J...>) {
    constexpr int values = Map::plain ? 1 : Outputs;
    state made;
    ((at<J>(made) = result<values == 1 ? 0 : F::at, values>(value)), ...);
    return made;
  }
  template <int Count>
  static KM_INL taken<Count> map_all(const Map& map, const batch<typename I::type, Count>&... from) {
    taken<Count> made;
    KM_UNROLL_ALL for (int n = 0; n < Count; n++) made.item[n] = spread(map(from.item[n]...), every_fold());
    return made;
  }
  template <int V, int U, int... K>
  static KM_INL taken<V * U> read_each(const call& c, const Map& map, const place (&from)[U], int inner, indices<K...>,
                                       batch<typename I::type, V * U>... raw) {
    KM_UNROLL_ALL for (int u = 0; u < U; u++) (take<I, V, K>(c, from[u].at[K], inner, raw.item + u * V), ...);
    return map_all<V * U>(map, raw...);
  }
  // V neighbours at each of U places.
  template <int V, int U>
  static KM_INL taken<V * U> read(const call& c, const Map& map, const place (&from)[U]) {
    return read_each<V, U>(c, map, from, (int)c.ndim - 1, every_input(), batch<typename I::type, V * U>()...);
  }
  // U packets of V neighbours, the packets `step` elements apart.
  template <bool Nested, int V, int U>
  static KM_INL taken<V * U> elements(const call& c, const Map& map, const place& row, i64 first, i64 step) {
    place from[U];
    KM_UNROLL_ALL for (int u = 0; u < U; u++) from[u] = element_of<Nested>(c, row, (int)c.ndim, first + u * step);
    return read<V, U>(c, map, from);
  }

  // Whether packets of V neighbours are aligned, from the beginning of a sequence and, where there are several dimensions, at
  // each step to another run or row.
  template <bool Steps, int V, int... K>
  static KM_INL bool each_aligned(const call& c, const place& row, indices<K...>) {
    const auto fits = [&](int bytes, const char* at, int k) {
      const int unit = smaller(16, bytes & -bytes);
      bool aligned = (uptr)at % unit == 0;
      if constexpr (Steps)
        for (int d = (int)c.kept; d < (int)c.ndim - 1; d++) aligned &= c.strides[k][d] % unit == 0;
      return aligned;
    };
    return ((I::pattern != contiguous || fits(V * I::size, row.at[K], K)) && ...);
  }
  template <bool Steps, int V>
  static KM_INL bool are_aligned(const call& c, const place& row) {
    return V == 1 || each_aligned<Steps, V>(c, row, every_input());
  }
  // Whether V neighbours from a multiple of V on lie in one run, and can be taken at once.
  template <bool Nested, int V>
  static KM_INL bool packets_fit(const call& c, const place& row) {
    return (!Nested || c.shape[(int)c.ndim - 1] % V == 0) && are_aligned<Nested, V>(c, row);
  }

  // ---- results

  template <int... J>
  static KM_INL void store_at(const bank& fold, const state& made, const spots<Outputs>& to, indices<J...>) {
    (store_anywhere<typename F::fold::out>((char*)to.at[F::at], fold_of<J>(fold).finish(at<J>(made))), ...);
  }
  // The result of a sequence, in column `column` of it where there are columns.
  static KM_INL void store(const call& c, const bank& fold, const state& made, i64 row, i64 column = 0) {
    spots<Outputs> to;
    const int inner = (int)c.ndim - 1;
    KM_UNROLL_ALL for (int k = 0; k < Outputs; k++) to.at[k] = c.data[inputs + k] + column * c.strides[inputs + k][inner];
    store_at(fold, made, seek(c, inputs, 0, (int)c.kept, row, to), every_fold());
  }

  // The result of the only sequence.
  static KM_INL void store_first(const call& c, const bank& fold, const state& made) {
    spots<Outputs> to;
    KM_UNROLL_ALL for (int k = 0; k < Outputs; k++) to.at[k] = c.data[inputs + k];
    store_at(fold, made, to, every_fold());
  }

  // ---- several pieces of one unit

  static KM_INL state* part(const call& c, i64 unit, i64 piece, int width = 1) {
    return (state*)(c.parts + N * c.apart) + (unit * c.pieces + piece) * width;
  }
  // Whether this block is the last one of a unit; every thread has written its part before.
  static KM_INL bool is_last(const call& c, i64 unit) {
    __shared__ bool last;
    block_barrier();
    if (threadIdx.x == 0) {
      u32* ticket = c.tickets + N * c.units + unit;
      last = atomic_add<acquire_release>(ticket, 1u) + 1 == (u32)c.pieces;
      if (last) atomic_store<relaxed>(ticket, 0u);
    }
    block_barrier();
    return last;
  }
  // How many parts each of some threads combines, a power of two.
  static KM_INL i64 shares(const call& c, int threads) {
    i64 each = 1;
    while (each * threads < c.pieces) each *= 2;
    return each;
  }
  // Combines the parts of `each` pieces from `first` on, or as many as there are, as adjacent pairs.
  static KM_COLD state joined_parts(const call& c, const bank fold, i64 unit, i64 first, i64 each, int width, int column) {
    constexpr int many = 4;
    const i64 end = smaller(c.pieces, first + each);
    if (each == 1) return part(c, unit, first, width)[column];
    pile<state> parts;
    _Pragma("unroll 1") for (i64 i = first; i < end; i += many) {
      state some[many];
      KM_UNROLL_ALL for (int n = 0; n < many; n++) some[n] = part(c, unit, smaller(i + n, end - 1), width)[column];
      KM_UNROLL_ALL for (int n = 0; n < many; n++)
        if (i + n < end) parts.push(some[n], fold);
    }
    return parts.top(fold);
  }
  // The result of one piece, which thread 0 has, of a sequence: stored if it is the only one, else combined by the last block.
  template <int T>
  static KM_INL void deliver(const call& c, const bank& fold, const state& made, i64 row, i64 piece,
                             block_storage<state, T>& storage) {
    if (c.pieces == 1) {
      if (threadIdx.x == 0) store(c, fold, made, row);
      return;
    }
    if (threadIdx.x == 0) *part(c, row, piece) = made;
    if (!is_last(c, row)) return;
    const i64 each = shares(c, T), count = ceil_div(c.pieces, each);
    state joined;
    if ((int)threadIdx.x < count) joined = joined_parts(c, fold, row, threadIdx.x * each, each, 1, 0);
    joined = block_reduce<T>(joined, fold, storage, (int)count);
    if (threadIdx.x == 0) store(c, fold, joined, row);
  }
};

}  // namespace km
