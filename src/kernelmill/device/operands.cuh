// operands.cuh - what element-wise kernels and reductions share: how operands are described, and several neighbouring elements
// moved by one access.  The loops are in transform.cuh and reduce*.cuh.
#pragma once
#include "elements.hpp"

namespace km {

// indices_of<3> is indices<0, 1, 2>; NVRTC has no built-in for it.
template <int... K> struct indices {};
template <int N, int... K> struct counted : counted<N - 1, N - 1, K...> {};
template <int... K> struct counted<0, K...> { typedef indices<K...> type; };
template <int N> using indices_of = typename counted<N>::type;

// How an operand moves when the innermost index grows by one; `by_value` is a scalar in the record of the call, and
// `unaligned` moves as its strides say, with elements at any address.  Of an `index` and an `address` nothing is read: the
// address is the value, which grows by one, or does not; a `placed` one is written where the result says, behind the address.
enum Pattern : int { contiguous, broadcast, strided, transposed, by_value, unaligned, index, address, placed };

template <class T>
struct address_element {
  static KM_INL T load(const char* from) { return (T)(i64)(uptr)from; }
};
template <class R>
struct placed_element {
  static KM_INL void store(char* to, const R& value) {
    if (value.f1 != nowhere) element<decltype(R::f0)>::store(to + value.f1, value.f0);
  }
};

template <class T, int P> struct access_of { typedef element<T> type; };
template <class T> struct access_of<T, unaligned> { typedef unaligned_element<T> type; };
template <class T> struct access_of<T, index> { typedef address_element<T> type; };
template <class T> struct access_of<T, address> { typedef address_element<T> type; };
template <class R> struct access_of<R, placed> { typedef placed_element<R> type; };

template <class T, int P>
struct arg {
  typedef T type;
  typedef typename access_of<T, P>::type access;
  static constexpr int pattern = P;
  static constexpr int size = (int)sizeof(T);
};
template <class... A> struct in {};
template <class... A> struct out {};

constexpr int max_dims = 8, value_slot = 16;

// ---- several elements in registers ---------------------------------------------------------------------------------------

template <class T, int N> struct batch { T item[N]; };

template <int Bytes> struct chunk { packet part[Bytes / 16]; };
template <> struct chunk<1> { u8 part; };
template <> struct chunk<2> { u16 part; };
template <> struct chunk<4> { u32 part; };
template <> struct chunk<8> { u64 part; };

// What one access can move; other sizes go element by element.
template <int Bytes> constexpr bool is_packet = Bytes % 16 == 0 || Bytes == 1 || Bytes == 2 || Bytes == 4 || Bytes == 8;

// A stored bool may hold any byte, so it travels as one.
template <class T> struct stored { typedef T type; };
template <> struct stored<bool> { typedef u8 type; };
KM_INL bool widened(bool, u8 value) { return value != 0; }
template <class T> KM_INL T widened(const T&, const T& value) { return value; }

template <class T, int V>
KM_INL void load_packets(const char* from, T* to) {
  typedef batch<typename stored<T>::type, V> kept;
  if constexpr (is_packet<(int)sizeof(kept)>) {
    const kept seen = __builtin_bit_cast(kept, *(const chunk<(int)sizeof(kept)>*)from);
    KM_UNROLL_ALL
    for (int v = 0; v < V; v++) to[v] = widened(T(), seen.item[v]);
  } else {
    KM_UNROLL_ALL
    for (int v = 0; v < V; v++) to[v] = element<T>::load(from + v * (int)sizeof(T));
  }
}
template <class T, int V>
KM_INL void store_packets(char* to, const T* from) {
  typedef batch<typename stored<T>::type, V> kept;
  if constexpr (is_packet<(int)sizeof(kept)>) {
    kept made;
    KM_UNROLL_ALL
    for (int v = 0; v < V; v++) made.item[v] = from[v];
    *(chunk<(int)sizeof(kept)>*)to = __builtin_bit_cast(chunk<(int)sizeof(kept)>, made);
  } else {
    KM_UNROLL_ALL
    for (int v = 0; v < V; v++) element<T>::store(to + v * (int)sizeof(T), from[v]);
  }
}

}  // namespace km
