// transform.cuh - element-wise operators on a device: any number of inputs and outputs, any layout, one launch a call.
// Each output is disjoint from the other operands or exactly one of the inputs.  The host's twin is host/transform.hpp.
//
//   typedef km::transform<Op, km::in<km::arg<T, pattern>...>, km::out<km::arg<T, pattern>...>, Captured, Bytes, V, U> Run;
//
// `Captured` bytes of captured scalars lie before the operands that are given by value; both together fill `Bytes`.  In one
// dimension a thread takes U packets of V neighbouring elements at a time.
#pragma once
#include "operands.cuh"

namespace km {

constexpr int transform_threads = 128, scattered = 4;

// What a launch passes, by value.  Strides in bytes, dimensions outermost first.
template <int Operands, int Bytes>
struct Call {
  __align__(16) char captures[Bytes];
  char* data[Operands];
  i64 elements, ndim, shape[max_dims], strides[Operands][max_dims];
};

// ---- operands --------------------------------------------------------------------------------------------------------------

// One operand in one dimension.  What does not move is read once.
template <class A, int P = A::pattern>
struct source {
  typedef typename A::type type;
  const char* at;
  KM_INL source(const char* p, i64, const char*) : at(p) {}
  template <int V> KM_INL bool is_aligned() const { return (uptr)at % smaller(16, V * A::size & -(V * A::size)) == 0; }
  KM_INL type one(i64 i) const { return element<type>::load(at + i * A::size); }
  template <int V, int U> KM_INL batch<type, V * U> many(i64 first) const {
    batch<type, V * U> taken;
    KM_UNROLL_ALL
    for (int u = 0; u < U; u++) load_packets<type, V>(at + (first + u * transform_threads * V) * A::size, taken.item + u * V);
    return taken;
  }
};
template <class A>
struct source<A, strided> {
  typedef typename A::type type;
  const char* at;
  i64 stride;
  KM_INL source(const char* p, i64 s, const char*) : at(p), stride(s) {}
  template <int V> KM_INL bool is_aligned() const { return true; }
  KM_INL type one(i64 i) const { return A::access::load(at + i * stride); }
  template <int V, int U> KM_INL batch<type, V * U> many(i64 first) const {
    batch<type, V * U> taken;
    KM_UNROLL_ALL
    for (int k = 0; k < V * U; k++) taken.item[k] = one(first + k / V * (transform_threads * V) + k % V);
    return taken;
  }
};
template <class A>
struct source<A, transposed> : source<A, strided> {
  using source<A, strided>::source;
};
template <class A>
struct source<A, unaligned> : source<A, strided> {
  using source<A, strided>::source;
};
template <class A>
struct source<A, broadcast> {
  typedef typename A::type type;
  type value;
  KM_INL source(const char* p, i64, const char*) : value(element<type>::load(p)) {}
  template <int V> KM_INL bool is_aligned() const { return true; }
  KM_INL type one(i64) const { return value; }
  template <int V, int U> KM_INL batch<type, V * U> many(i64) const {
    batch<type, V * U> taken;
    KM_UNROLL_ALL
    for (int k = 0; k < V * U; k++) taken.item[k] = value;
    return taken;
  }
};
template <class A>
struct source<A, by_value> : source<A, broadcast> {
  KM_INL source(const char*, i64, const char* given) : source<A, broadcast>(given, 0, nullptr) {}
};

template <class A>
struct source<A, address> {
  typedef typename A::type type;
  type value;
  KM_INL source(const char* p, i64, const char*) : value((type)(uptr)p) {}
  template <int V> KM_INL bool is_aligned() const { return true; }
  KM_INL type one(i64) const { return value; }
  template <int V, int U> KM_INL batch<type, V * U> many(i64) const {
    batch<type, V * U> taken;
    KM_UNROLL_ALL
    for (int k = 0; k < V * U; k++) taken.item[k] = value;
    return taken;
  }
};
template <class A>
struct source<A, index> {
  typedef typename A::type type;
  KM_INL source(const char*, i64, const char*) {}
  template <int V> KM_INL bool is_aligned() const { return true; }
  KM_INL type one(i64 i) const { return i; }
  template <int V, int U> KM_INL batch<type, V * U> many(i64 first) const {
    batch<type, V * U> taken;
    KM_UNROLL_ALL
    for (int k = 0; k < V * U; k++) taken.item[k] = first + k / V * (transform_threads * V) + k % V;
    return taken;
  }
};

template <class A>
struct sink {
  typedef typename A::type type;
  static constexpr bool moves = A::pattern == contiguous;
  char* at;
  i64 stride;
  KM_INL sink(char* p, i64 s) : at(p), stride(moves ? (i64)A::size : s) {}
  template <int V> KM_INL bool is_aligned() const {
    return !moves || (uptr)at % smaller(16, V * A::size & -(V * A::size)) == 0;
  }
  KM_INL void put(i64 i, const type& value) const {
    A::access::store(at + i * (moves ? (i64)A::size : stride), value);
  }
  template <int V, int U> KM_INL void put_many(i64 first, const batch<type, V * U>& made) const {
    if constexpr (moves) {
      KM_UNROLL_ALL
      for (int u = 0; u < U; u++)
        store_packets<type, V>(at + (first + u * transform_threads * V) * A::size, made.item + u * V);
    } else {
      KM_UNROLL_ALL
      for (int k = 0; k < V * U; k++) put(first + k / V * (transform_threads * V) + k % V, made.item[k]);
    }
  }
};

// ---- the loops -------------------------------------------------------------------------------------------------------------

template <class Op, class In, class Out, int Captured, int Bytes, int V, int U> struct transform;

template <class Op, class... I, class... O, int Captured, int Bytes, int V, int U>
struct transform<Op, in<I...>, out<O...>, Captured, Bytes, V, U> {
  static constexpr int inputs = (int)sizeof...(I), outputs = (int)sizeof...(O), operands = inputs + outputs;
  typedef Call<operands, Bytes> call;
  typedef indices_of<inputs> every_input;
  typedef indices_of<outputs> every_output;

  // Where operand k is, were it given by value: behind the captured scalars and the values before it.
  static KM_INL constexpr int value_at(int k) {
    constexpr bool given[] = {I::pattern == by_value...};
    int at = Captured;
    for (int j = 0; j < k; j++) at += given[j] ? value_slot : 0;
    return at;
  }

  template <int N, int... J>
  static KM_INL void apply(const Op& op, indices<J...>, batch<typename O::type, N>&... made,
                           const batch<typename I::type, N>&... taken) {
    KM_UNROLL_ALL
    for (int k = 0; k < N; k++) {
      const auto value = op(taken.item[k]...);
      ((made.item[k] = result<J, outputs>(value)), ...);
    }
  }
  template <int N, class Put, int... J>
  static KM_INL void apply_and_put(const Op& op, const Put& put, indices<J...> each, batch<typename O::type, N>... made,
                                   batch<typename I::type, N>... taken) {
    apply<N>(op, each, made..., taken...);
    put(made...);
  }

  // ---- one dimension
  template <int... J>
  static KM_INL void sweep(const Op& op, i64 n, indices<J...> each, sink<O>... to, source<I>... from) {
    constexpr i64 tile = (i64)transform_threads * V * U;
    const bool packets = (from.template is_aligned<V>() && ...) && (to.template is_aligned<V>() && ...);
    for (i64 base = (i64)blockIdx.x * tile; base < n; base += (i64)gridDim.x * tile) {
      if (packets && base + tile <= n) {
        const i64 first = base + (i64)threadIdx.x * V;
        apply_and_put<V * U>(
            op, [&](const batch<typename O::type, V * U>&... made) { (to.template put_many<V, U>(first, made), ...); }, each,
            batch<typename O::type, V * U>()..., from.template many<V, U>(first)...);
      } else {
        const i64 end = smaller(n, base + tile);
        for (i64 i = base + threadIdx.x; i < end; i += transform_threads) {
          const auto value = op(from.one(i)...);
          (to.put(i, result<J, outputs>(value)), ...);
        }
      }
    }
  }
  template <int... K, int... J>
  static KM_INL void flat(const call& c, const Op& op, indices<K...>, indices<J...> each) {
    sweep(op, c.elements, each, sink<O>(c.data[inputs + J], c.strides[inputs + J][0])...,
          source<I>(c.data[K], c.strides[K][0], c.captures + value_at(K))...);
  }
  static KM_INL void flat(const call& c) { flat(c, Op(c.captures), every_input(), every_output()); }

  // ---- several dimensions
  struct place {
    i64 offset[operands];
  };
  template <class Index>
  static KM_INL place locate(const call& c, Index rest) {
    place at;
    KM_UNROLL_ALL
    for (int k = 0; k < operands; k++) at.offset[k] = 0;
    _Pragma("unroll 1") for (int d = (int)c.ndim - 1; d > 0; d--) {
      const Index extent = (Index)c.shape[d], outer = rest / extent;
      const i64 here = (i64)(rest - outer * extent);
      rest = outer;
      KM_UNROLL_ALL
      for (int k = 0; k < operands; k++) at.offset[k] += here * c.strides[k][d];
    }
    KM_UNROLL_ALL
    for (int k = 0; k < operands; k++) at.offset[k] += (i64)rest * c.strides[k][0];
    return at;
  }
  template <class A, int K, int N>
  static KM_INL batch<typename A::type, N> gather(const call& c, const place* at) {
    batch<typename A::type, N> taken;
    KM_UNROLL_ALL
    for (int u = 0; u < N; u++)
      taken.item[u] = A::access::load(
          A::pattern == by_value ? c.captures + value_at(K) : c.data[K] + at[u].offset[K]);
    return taken;
  }
  template <class A, int K, int N>
  static KM_INL void scatter(const call& c, const place* at, const batch<typename A::type, N>& made) {
    KM_UNROLL_ALL
    for (int u = 0; u < N; u++) A::access::store(c.data[K] + at[u].offset[K], made.item[u]);
  }
  template <int N, class Index, int... K, int... J>
  static KM_INL void step(const call& c, const Op& op, Index first, indices<K...>, indices<J...> each) {
    place at[N];
    KM_UNROLL_ALL
    for (int u = 0; u < N; u++) at[u] = locate(c, first + (Index)(u * transform_threads));
    apply_and_put<N>(
        op, [&](const batch<typename O::type, N>&... made) { (scatter<O, inputs + J, N>(c, at, made), ...); }, each,
        batch<typename O::type, N>()..., gather<I, K, N>(c, at)...);
  }
  template <int N, class Index>
  static KM_INL void walk(const call& c, const Op& op, Index n) {
    constexpr int tile = transform_threads * N;
    for (Index base = (Index)blockIdx.x * tile; base < n; base += (Index)gridDim.x * tile) {
      const Index first = base + threadIdx.x;
      if (base + tile <= n)
        step<N>(c, op, first, every_input(), every_output());
      else
        for (Index i = first; i < n; i += transform_threads) step<1>(c, op, i, every_input(), every_output());
    }
  }
  static KM_INL void nested(const call& c) {
    const Op op(c.captures);
    if (c.elements < (i64)1 << 31)
      walk<scattered>(c, op, (u32)c.elements);
    else
      walk<1>(c, op, (u64)c.elements);
  }
};

}  // namespace km
