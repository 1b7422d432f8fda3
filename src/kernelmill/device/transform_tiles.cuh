// transform_tiles.cuh - element-wise operators with inputs that are contiguous along the last but one dimension: such an input
// goes through a tile in shared memory, so that both it and the outputs move whole lines.
#pragma once
#include "transform.cuh"

namespace km {

constexpr int tile_threads = 256;

// The record of a launch that says itself how many blocks there are; no scratch memory is used.
template <int Operands, int Bytes>
struct TiledCall {
  __align__(16) char captures[Bytes];
  char* data[Operands];
  i64 elements, ndim, shape[max_dims], strides[Operands][max_dims];
  char* parts;
  u32* tickets;
};

// A tile has `Side` times `Side` elements.
template <class Run, int Side> struct tiles;

template <class Op, class... I, class... O, int Captured, int Bytes, int V, int U, int Side>
struct tiles<transform<Op, in<I...>, out<O...>, Captured, Bytes, V, U>, Side> {
  typedef transform<Op, in<I...>, out<O...>, Captured, Bytes, V, U> run_type;
  static constexpr int inputs = (int)sizeof...(I), operands = inputs + (int)sizeof...(O);
  typedef TiledCall<operands, Bytes> call;
  static constexpr int step = tile_threads / Side, many = Side / step < 4 ? Side / step : 4;
  static_assert(Side % step == 0 && tile_threads % Side == 0, "whole rows of threads");

  // Elements from one column of a tile to the next, so that neither rows nor columns meet in the banks of shared memory.
  static KM_INL constexpr int pitch(int size) { return Side + (size < 4 ? 4 / size : 1); }
  // Where the tile of input k begins; of no input, the size of all of them.
  static KM_INL constexpr int room_at(int k) {
    constexpr bool turned[] = {I::pattern == transposed...};
    constexpr int size[] = {I::size...};
    int at = 0;
    for (int j = 0; j < k; j++) at += turned[j] ? (Side * pitch(size[j]) * size[j] + 15) / 16 * 16 : 0;
    return at;
  }

  // A block's tile: where operands are in its first row and column, and how many of both there are.
  struct tile {
    char* at[operands];
    i64 row, column;  // strides are those of the last dimensions
    int rows, columns;
  };
  static KM_INL tile locate(const call& c, i64 index) {
    const int last = (int)c.ndim - 1;
    const i64 across = ceil_div(c.shape[last], Side), down = ceil_div(c.shape[last - 1], Side);
    i64 rest = index / across;
    tile t;
    t.column = (index - rest * across) * Side;
    i64 outer = rest / down;
    t.row = (rest - outer * down) * Side;
    t.rows = (int)smaller<i64>(Side, c.shape[last - 1] - t.row);
    t.columns = (int)smaller<i64>(Side, c.shape[last] - t.column);
    KM_UNROLL_ALL
    for (int k = 0; k < operands; k++) t.at[k] = c.data[k] + t.row * c.strides[k][last - 1] + t.column * c.strides[k][last];
    _Pragma("unroll 1") for (int d = last - 2; d >= 0; d--) {
      const i64 here = outer % c.shape[d];
      outer /= c.shape[d];
      KM_UNROLL_ALL
      for (int k = 0; k < operands; k++) t.at[k] += here * c.strides[k][d];
    }
    return t;
  }

  // Copies the tile of a turned input: neighbouring threads take what lies side by side.
  template <class A, int K>
  static KM_INL void fill(const call& c, const tile& t, char* room) {
    if constexpr (A::pattern == transposed) {
      typedef typename A::type T;
      const int row = (int)threadIdx.x % Side, first = (int)threadIdx.x / Side;
      if (row >= t.rows) return;
      T* to = (T*)(room + room_at(K)) + first * pitch(A::size) + row;
      const i64 stride = c.strides[K][(int)c.ndim - 1], far = step * stride;
      const char* from = t.at[K] + row * A::size + first * stride;
      if (t.columns == Side) {
        T some[Side / step];
        KM_UNROLL_ALL
        for (int j = 0; j < Side / step; j++, from += far) some[j] = element<T>::load(from);
        KM_UNROLL_ALL
        for (int j = 0; j < Side / step; j++) to[j * step * pitch(A::size)] = some[j];
      } else {
        _Pragma("unroll 1") for (int column = first; column < t.columns; column += step, from += far) {
          *to = element<T>::load(from);
          to += step * pitch(A::size);
        }
      }
    }
  }

  // What a thread has of each operand: a column of the tile, from its first row on.
  struct lane {
    char* at[operands];
    i64 far[operands];  // from one of its rows to the next
  };
  template <class A, int K>
  static KM_INL batch<typename A::type, many> take(const call& c, const lane& l, const char* room, int column, int first,
                                                   int left) {
    typedef typename A::type T;
    batch<T, many> taken;
    const T* tile = (const T*)(room + room_at(K)) + column * pitch(A::size) + first;
    KM_UNROLL_ALL
    for (int n = 0; n < many; n++) {
      if (n > 0 && n >= left) {  // once more the last one that is there
        taken.item[n] = taken.item[n - 1];
        continue;
      }
      if constexpr (A::pattern == transposed)
        taken.item[n] = tile[n * step];
      else if constexpr (A::pattern == by_value)
        taken.item[n] = element<T>::load(c.captures + run_type::value_at(K));
      else
        taken.item[n] = A::access::load(l.at[K] + n * l.far[K]);
    }
    return taken;
  }
  template <class A, int K>
  static KM_INL void put(const lane& l, int left, const batch<typename A::type, many>& made) {
    KM_UNROLL_ALL
    for (int n = 0; n < many; n++)
      if (n < left) A::access::store(l.at[K] + n * l.far[K], made.item[n]);
  }
  template <int... K, int... J>
  static KM_INL void apply(const call& c, const Op& op, const lane& l, const char* room, int column, int first, int left,
                           indices<K...>, indices<J...> each) {
    run_type::template apply_and_put<many>(
        op, [&](const batch<typename O::type, many>&... made) { (put<O, inputs + J>(l, left, made), ...); }, each,
        batch<typename O::type, many>()..., take<I, K>(c, l, room, column, first, left)...);
  }
  // ---- elements of one or two bytes: a thread takes P of them as a word, and turns P words of P elements

  static KM_INL constexpr int packed() {
    constexpr bool turned[] = {I::pattern == transposed..., false};
    constexpr int size[] = {I::size..., 0};
    int found = 0;
    for (int k = 0; k < inputs; k++)
      if (turned[k]) found = found == 0 || found == size[k] ? size[k] : 4;
    return found == 1 || found == 2 ? 4 / found : 1;
  }
  static constexpr int P = packed(), words = Side / P;

  // Whether what moves along rows can be taken P elements at a time, and turned inputs as words.
  template <class A>
  static KM_INL bool fits(const call& c, const char* at, int k) {
    constexpr int bytes = P * A::size, unit = A::pattern == transposed ? 4 : (bytes & -bytes) < 16 ? bytes & -bytes : 16;
    const int last = (int)c.ndim - 1;
    if (A::pattern != transposed && A::pattern != contiguous) return true;
    return ((uptr)at | (uptr)c.strides[k][A::pattern == transposed ? last : last - 1]) % unit == 0;
  }
  template <class A, int K>
  static KM_INL void fill_words(const call& c, const tile& t, char* room) {
    if constexpr (A::pattern == transposed) {
      constexpr int apart = tile_threads / words, count = Side / apart, pitch_words = pitch(A::size) * A::size / 4;
      const int word = (int)threadIdx.x % words, first = (int)threadIdx.x / words;
      const i64 stride = c.strides[K][(int)c.ndim - 1];
      const char* from = t.at[K] + word * 4 + first * stride;
      u32* to = (u32*)(room + room_at(K)) + first * pitch_words + word;
      u32 some[count];
      KM_UNROLL_ALL
      for (int j = 0; j < count; j++, from += apart * stride) some[j] = *(const u32*)from;
      KM_UNROLL_ALL
      for (int j = 0; j < count; j++) to[j * apart * pitch_words] = some[j];
    }
  }
  // The P words of P rows that a thread turns; other operands have none.
  template <class A, int K>
  static KM_INL batch<u32, P> columns_of(const char* room, int column, int rows) {
    batch<u32, P> found = {};
    if constexpr (A::pattern == transposed) {
      const u32* from = (const u32*)(room + room_at(K)) + column * (pitch(A::size) * A::size / 4) + rows;
      KM_UNROLL_ALL
      for (int p = 0; p < P; p++) found.item[p] = from[p * (pitch(A::size) * A::size / 4)];
    }
    return found;
  }
  template <class A, int K>
  static KM_INL batch<typename A::type, P> row_of(const call& c, const char* at, const batch<u32, P>& turned, int row) {
    typedef typename A::type T;
    batch<T, P> taken;
    if constexpr (A::pattern == transposed) {
      if constexpr (A::size * P == 4) {
        KM_UNROLL_ALL
        for (int p = 0; p < P; p++)
          taken.item[p] = widened(T(), bit_cast<batch<typename stored<T>::type, P>>(turned.item[p]).item[row]);
      }
    } else if constexpr (A::pattern == contiguous) {
      load_packets<T, P>(at, taken.item);
    } else {
      KM_UNROLL_ALL
      for (int p = 0; p < P; p++)
        taken.item[p] = A::pattern == by_value ? element<T>::load(c.captures + run_type::value_at(K))
                                               : A::access::load(at + p * c.strides[K][(int)c.ndim - 1]);
    }
    return taken;
  }
  template <class A, int K>
  static KM_INL void put_row(const call& c, char* at, const batch<typename A::type, P>& made) {
    if constexpr (A::pattern == contiguous) {
      store_packets<typename A::type, P>(at, made.item);
    } else {
      KM_UNROLL_ALL
      for (int p = 0; p < P; p++) A::access::store(at + p * c.strides[K][(int)c.ndim - 1], made.item[p]);
    }
  }
  template <int... K, int... J, class... Turned>
  static KM_INL void turn(const call& c, const Op& op, char* (&at)[operands], int row, indices<K...>, indices<J...> each,
                          const Turned&... turned) {
    run_type::template apply_and_put<P>(
        op, [&](const batch<typename O::type, P>&... made) { (put_row<O, inputs + J>(c, at[inputs + J], made), ...); }, each,
        batch<typename O::type, P>()..., row_of<I, K>(c, at[K], turned, row)...);
  }
  template <int... K>
  static KM_INL void work_words(const call& c, const Op& op, const tile& t, char* room, indices<K...> each) {
    (fill_words<I, K>(c, t, room), ...);
    block_barrier();
    const int column = (int)threadIdx.x % words * P, last = (int)c.ndim - 1;
    _Pragma("unroll 1") for (int rows = (int)threadIdx.x / words; rows < words; rows += tile_threads / words) {
      char* at[operands];
      KM_UNROLL_ALL
      for (int k = 0; k < operands; k++)
        at[k] = t.at[k] + rows * P * c.strides[k][last - 1] + column * c.strides[k][last];
      turn_all(c, op, at, each, columns_of<I, K>(room, column, rows)...);
    }
    block_barrier();
  }
  template <int... K, class... Turned>
  static KM_INL void turn_all(const call& c, const Op& op, char* (&at)[operands], indices<K...> each, const Turned&... turned) {
    KM_UNROLL_ALL
    for (int row = 0; row < P; row++) {
      turn(c, op, at, row, each, typename run_type::every_output(), turned...);
      KM_UNROLL_ALL
      for (int k = 0; k < operands; k++) at[k] += c.strides[k][(int)c.ndim - 2];
    }
  }
  template <int... K, int... J>
  static KM_INL bool all_fit(const call& c, const tile& t, indices<K...>, indices<J...>) {
    return P > 1 && t.rows == Side && t.columns == Side && (fits<I>(c, t.at[K], K) && ...) &&
           (fits<O>(c, t.at[inputs + J], inputs + J) && ...);
  }

  // ---- one element at a time

  template <int... K>
  static KM_INL void work(const call& c, const Op& op, const tile& t, char* room, indices<K...> each) {
    if constexpr (P > 1 && Side * P >= 64) {
      if (all_fit(c, t, each, typename run_type::every_output())) return work_words(c, op, t, room, each);
    }
    (fill<I, K>(c, t, room), ...);
    block_barrier();
    const int column = (int)threadIdx.x % Side, last = (int)c.ndim - 1;
    int first = (int)threadIdx.x / Side;
    if (column < t.columns) {
      lane l;
      KM_UNROLL_ALL
      for (int k = 0; k < operands; k++) {
        l.far[k] = step * c.strides[k][last - 1];
        l.at[k] = t.at[k] + first * c.strides[k][last - 1] + column * c.strides[k][last];
      }
      _Pragma("unroll 1") for (; first < t.rows; first += step * many) {
        const int left = t.rows == Side ? many : (t.rows - first + step - 1) / step;
        if (left >= many)
          apply(c, op, l, room, column, first, many, each, typename run_type::every_output());
        else
          apply(c, op, l, room, column, first, left, each, typename run_type::every_output());
        KM_UNROLL_ALL
        for (int k = 0; k < operands; k++) l.at[k] += many * l.far[k];
      }
    }
    block_barrier();
  }
  static KM_INL void all(const call& c) {
    __shared__ __align__(16) char room[room_at(inputs)];
    const Op op(c.captures);
    const int last = (int)c.ndim - 1;
    i64 count = ceil_div(c.shape[last], Side) * ceil_div(c.shape[last - 1], Side);
    for (int d = 0; d < last - 1; d++) count *= c.shape[d];
    _Pragma("unroll 1") for (i64 index = blockIdx.x; index < count; index += gridDim.x)
      work(c, op, locate(c, index), room, typename run_type::every_input());
  }
};

}  // namespace km
