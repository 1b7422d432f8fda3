// transform_tiles.cuh - element-wise operators with inputs that are contiguous along the last but one dimension: such an input
// goes through a tile in shared memory, so that both it and the outputs move whole lines.
#pragma once
#include "transform.cuh"

namespace km {

constexpr int tile_threads = 256;  // a multiple of a tile's side

// The record of a launch that says itself how many blocks there are; no scratch memory is used.
template <int Operands, int Bytes>
struct TiledCall {
  __align__(16) char captures[Bytes];
  char* data[Operands];
  i64 elements, ndim, shape[max_dims], strides[Operands][max_dims];
  char* parts;
  u32* tickets;
};

// P elements of a row, kept as one word or packet where they can be; of a turned input a word has P of a column.
template <class T, int P, int Pattern>
struct kept_row {
  static constexpr bool whole = false;
  typedef batch<T, P> type;
};
template <class T, int P>
struct kept_row<T, P, contiguous> {
  static constexpr int bytes = P * (int)sizeof(T);
  static constexpr bool whole = is_packet<bytes>;
  template <int Bytes, bool Whole> struct held { typedef chunk<Bytes> type; };
  template <int Bytes> struct held<Bytes, false> { typedef batch<T, P> type; };
  typedef typename held<bytes, whole>::type type;
};
template <class T, int P>
struct kept_row<T, P, transposed> {
  static constexpr bool whole = true;
  typedef chunk<4> type;
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
        constexpr int count = Side / step < 16 ? Side / step : 16;
        _Pragma("unroll 1") for (int done = 0; done < Side / step; done += count, to += count * step * pitch(A::size)) {
          T some[count];
          KM_UNROLL_ALL
          for (int j = 0; j < count; j++, from += far) some[j] = element<T>::load(from);
          KM_UNROLL_ALL
          for (int j = 0; j < count; j++) to[j * step * pitch(A::size)] = some[j];
        }
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
  // Words in a column; columns that the block fills at once; stripes of P rows that a thread has at a time: more of them take
  // the registers of other blocks.
  static constexpr int P = packed(), words = Side / P, apart = tile_threads / words, stripes = 1;

  // Where a word of a column is: its number mixes the places, so that neither way through the tile meets in a bank.
  static KM_INL int word_at(int column, int word) { return column * words + (word ^ (column / P % smaller(words, 32))); }
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
      constexpr int count = Side / apart, some = count < 8 ? count : 8;
      const int word = (int)threadIdx.x % words, first = (int)threadIdx.x / words;
      const i64 far = apart * c.strides[K][(int)c.ndim - 1];
      const char* from = t.at[K] + word * 4 + first * c.strides[K][(int)c.ndim - 1];
      u32* to = (u32*)(room + room_at(K));
      if (word >= t.rows / P) return;
      _Pragma("unroll 1") for (int column = first; column < t.columns; column += some * apart, from += some * far) {
        u32 seen[some];
        KM_UNROLL_ALL
        for (int j = 0; j < some; j++)
          if (column + j * apart < t.columns) seen[j] = *(const u32*)(from + j * far);
        KM_UNROLL_ALL
        for (int j = 0; j < some; j++)
          if (column + j * apart < t.columns) to[word_at(column + j * apart, word)] = seen[j];
      }
    }
  }
  // What a thread has of an operand: rows of P elements, P of a stripe, of stripes that are `apart`; beyond the last one, that
  // one again.  Words stay as they were read until their elements are computed with, which takes fewer registers.
  template <class A>
  using patch = batch<typename kept_row<typename A::type, P, A::pattern>::type, stripes * P>;
  template <class A, int K>
  static KM_INL patch<A> patch_of(const call& c, const tile& t, const char* room, int column, int stripe) {
    typedef typename A::type T;
    typedef kept_row<T, P, A::pattern> kept;
    const int last = (int)c.ndim - 1;
    patch<A> taken;
    KM_UNROLL_ALL
    for (int s = 0; s < stripes; s++) {
      const int here = smaller(stripe + s * apart, t.rows / P - 1);
      const char* at = t.at[K] + column * c.strides[K][last] + here * P * c.strides[K][last - 1];
      const u32* turned = (const u32*)(room + room_at(K)) + word_at(column, here);
      KM_UNROLL_ALL
      for (int r = 0; r < P; r++, at += c.strides[K][last - 1]) {
        auto& row = taken.item[s * P + r];
        if constexpr (A::pattern == transposed) {
          row.part = turned[r * words];
        } else if constexpr (kept::whole) {
          row = *(const typename kept::type*)at;
        } else {
          KM_UNROLL_ALL
          for (int p = 0; p < P; p++)
            row.item[p] = A::pattern == by_value ? element<T>::load(c.captures + run_type::value_at(K))
                                                 : A::access::load(at + p * c.strides[K][last]);
        }
      }
    }
    return taken;
  }
  template <class A>
  static KM_INL batch<typename A::type, P> row_of(const patch<A>& taken, int s, int r) {
    typedef typename A::type T;
    typedef batch<typename stored<T>::type, P> as_stored;
    if constexpr (A::pattern == transposed || kept_row<T, P, A::pattern>::whole) {
      batch<T, P> row;
      KM_UNROLL_ALL
      for (int p = 0; p < P; p++) {
        if constexpr (A::pattern == transposed) row.item[p] = widened(T(), bit_cast<as_stored>(taken.item[s * P + p]).item[r]);
        else row.item[p] = widened(T(), bit_cast<as_stored>(taken.item[s * P + r]).item[p]);
      }
      return row;
    } else {
      return taken.item[s * P + r];
    }
  }
  template <class A, int K>
  static KM_INL void put_row(const call& c, const tile& t, int row, int column, const batch<typename A::type, P>& made) {
    const int last = (int)c.ndim - 1;
    char* at = t.at[K] + row * c.strides[K][last - 1] + column * c.strides[K][last];
    if constexpr (A::pattern == contiguous) {
      store_packets<typename A::type, P>(at, made.item);
    } else {
      KM_UNROLL_ALL
      for (int p = 0; p < P; p++) A::access::store(at + p * c.strides[K][last], made.item[p]);
    }
  }
  template <int... J>
  static KM_INL void turn(const call& c, const Op& op, const tile& t, int column, int stripe, indices<J...> each,
                          const patch<I>&... taken) {
    KM_UNROLL_ALL
    for (int s = 0; s < stripes; s++) {
      const int first = (stripe + s * apart) * P;
      if (s > 0 && first >= t.rows) break;
      KM_UNROLL_ALL
      for (int r = 0; r < P; r++) {
        run_type::template apply_and_put<P>(
            op,
            [&](const batch<typename O::type, P>&... made) {
              (put_row<O, inputs + J>(c, t, first + r, column, made), ...);
            },
            each, batch<typename O::type, P>()..., row_of<I>(taken, s, r)...);
      }
    }
  }
  template <int... K>
  static KM_INL void work_words(const call& c, const Op& op, const tile& t, char* room, indices<K...>) {
    (fill_words<I, K>(c, t, room), ...);
    block_barrier();
    const int column = (int)threadIdx.x % words * P;
    if (column < t.columns) {
      _Pragma("unroll 1") for (int stripe = (int)threadIdx.x / words; stripe < t.rows / P; stripe += stripes * apart)
        turn(c, op, t, column, stripe, typename run_type::every_output(), patch_of<I, K>(c, t, room, column, stripe)...);
    }
    block_barrier();
  }
  template <int... K, int... J>
  static KM_INL bool all_fit(const call& c, const tile& t, indices<K...>, indices<J...>) {
    return t.rows % P == 0 && t.columns % P == 0 && (fits<I>(c, t.at[K], K) && ...) &&
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
