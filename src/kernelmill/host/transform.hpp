// transform.hpp - element-wise operators: any number of inputs and outputs, any layout; reductions
// are in reduce.hpp. The host passes collapsed dimensions, sorted so that the innermost one is the
// fastest for most operands.  Each output is disjoint from the other operands or exactly one of the
// inputs.
//
//   km::transform<Op, km::in<km::arg<T, pattern>...>, km::out<km::arg<T, pattern>...>>::run(call,
//   op);
//
// Op is trivially copyable and holds its captured scalars by value, so that they stay in registers
// inside the loop; operator()(T...) const returns the one result or a km::tupleN of them.
#pragma once
#include "layout.hpp"
#include "stream.hpp"
#include "tile.hpp"

namespace km {

constexpr i64 task_elements = 32768;

// An operator and its quick form, which is right unless its member `far()` says otherwise afterwards
// (near.hpp).
template <class Exact, class Near> struct guarded {
  Exact exact;
  Near near;
  KM_INL explicit guarded(const void* packed) : exact(packed), near(packed) {}
};

// Such operators take the time themselves: what a piece costs is spread over more of it.
template <class Op> struct stage_for {
  typedef km::Stage type;
};
template <class Exact, class Near> struct stage_for<guarded<Exact, Near>> {
  typedef stage_of<2048> type;
};

template <class Op, class In, class Out> struct transform;

template <class Op, class... I, class... O> struct transform<Op, in<I...>, out<O...>> {
  typedef typename stage_for<Op>::type Stage;
  static constexpr int inputs = (int)sizeof...(I), outputs = (int)sizeof...(O),
                       operands = inputs + outputs;
  static constexpr i64 largest = max_of(O::size...);
  static constexpr i64 turned = max_of(I::pattern == transposed ? I::size : 0 ...);

  // ---- one row -----------------------------------------------------------------------------------

  // Inputs that move by a stride are first brought together in the first-level cache, a piece of
  // the row at a time; a turned one lies there already.
  template <class A>
  using near_arg = arg<typename A::type, A::pattern == strided || A::pattern == transposed ? contiguous : A::pattern>;
  static constexpr i64 piece = 512;
  static constexpr i64 scattered = max_of(I::pattern == strided ? I::size : 0 ...);

  template <class A>
  static KM_INL void bring(char*& p, i64 stride, i64 n, char (*brought)[piece * larger(scattered, i64(1))], int k) {
    if constexpr (A::pattern == strided) {
      collect<typename A::type>(brought[k], p, stride, n);
      p = brought[k];
    }
  }
  template <int... K>
  static KM_INL void bring_all(char** p, const i64* s, i64 n,
                               char (*brought)[piece * larger(scattered, i64(1))], indices<K...>) {
    (bring<I>(p[K], s[K], n, brought, K), ...);
  }

  template <class Plain, int... J>
  static KM_INL void sweep(const Plain op, i64 n, indices<J...>, writer<O>... to,
                           reader<near_arg<I>>... from) {
    KM_IVDEP
    for (i64 i = 0; i < n; i++) {
      const auto value = op(from[i]...);
      (to.put(i, result<J, outputs>(value)), ...);
    }
  }
  template <class Plain, int... K, int... J>
  static KM_HOT void near_by(const Plain& op, i64 n, char* const* p, const i64* s, indices<K...>,
                             indices<J...> each) {
    sweep(op, n, each, writer<O>(p[inputs + J], s[inputs + J])..., reader<near_arg<I>>(p[K], 1)...);
  }
  template <class Plain> static KM_INL void row(const Plain& op, i64 n, char* const* p, const i64* s) {
    if constexpr (scattered == 0) {
      near_by(op, n, p, s, indices_of<inputs>(), indices_of<outputs>());
    } else {
      alignas(64) char brought[inputs][piece * scattered];
      for (i64 done = 0, m; done < n; done += m) {
        char* at[operands];
        m = smaller(piece, n - done);
        for (int k = 0; k < operands; k++) at[k] = p[k] + done * s[k];
        bring_all(at, s, m, brought, indices_of<inputs>());
        near_by(op, m, at, s, indices_of<inputs>(), indices_of<outputs>());
      }
    }
  }

  // A guarded operator: piece by piece in its quick form, then once more in its exact form where
  // that is needed. An output that may be an input is not written before that is known.
  template <class Near, int... J>
  static KM_INL bool guarded_sweep(const Near near, i64 n, indices<J...>,
                                  writer<arg<typename O::type, contiguous>>... to,
                                  reader<near_arg<I>>... from) {
    KM_IVDEP
    for (i64 i = 0; i < n; i++) {
      const auto value = near(from[i]...);
      (to.put(i, result<J, outputs>(value)), ...);
    }
    return near.far();
  }
  template <class Near, int... K, int... J>
  static KM_HOT bool guarded_near_by(const Near& near, i64 n, char* const* p, char* const* to,
                                    indices<K...>, indices<J...> each) {
    return guarded_sweep(near, n, each, writer<arg<typename O::type, contiguous>>(to[J], O::size)...,
                         reader<near_arg<I>>(p[K], 1)...);
  }
  template <class A> static KM_INL void put(char* to, i64 stride, const char* from, i64 n) {
    if constexpr (A::pattern == placed)
      for (i64 i = 0; i < n; i++) store_placed(to, element<typename A::type>::load(from + i * A::size));
    else if (A::pattern == contiguous)
      __builtin_memcpy(to, from, (usize)(n * A::size));
    else
      for (i64 i = 0; i < n; i++) __builtin_memcpy(to + i * stride, from + i * A::size, A::size);
  }
  template <int... J>
  static KM_INL void put_all(char* const* p, const i64* s, char* const* made, i64 n, indices<J...>) {
    ((made[J] == p[inputs + J] ? (void)0 : put<O>(p[inputs + J], s[inputs + J], made[J], n)), ...);
  }
  template <class Exact, class Near>
  static KM_COLD void row(const guarded<Exact, Near>& op, i64 n, char* const* p, const i64* s) {
    constexpr auto in_ = indices_of<inputs>();
    constexpr auto out_ = indices_of<outputs>();
    constexpr bool dense[] = {(O::pattern == contiguous)...};
    alignas(64) char aside[outputs][piece * largest];
    alignas(64) char brought[inputs][piece * larger(scattered, i64(1))];
    bool apart = true;
    for (int k = 0; k < inputs; k++)
      for (int j = inputs; j < operands; j++) apart = apart && p[k] != p[j];
    for (i64 done = 0, m; done < n; done += m) {
      char* at[operands];
      m = smaller(piece, n - done);
      for (int k = 0; k < operands; k++) at[k] = p[k] + done * s[k];
      char* made[outputs];
      for (int j = 0; j < outputs; j++) made[j] = apart && dense[j] ? at[inputs + j] : aside[j];
      bring_all(at, s, m, brought, in_);
      if (guarded_near_by(op.near, m, at, made, in_, out_))
        near_by(op.exact, m, at, s, in_, out_);
      else
        put_all(at, s, made, m, out_);
    }
  }

  // Asks for what comes after n elements of input `fetched`, the only one that is read from memory:
  // the processor's own prefetching falls behind where a piece is written between two that are
  // read.  Several inputs keep it busy, and would only crowd each other out.
  template <class A> static KM_INL void fetch(bool wanted, const char* p, i64 stride, i64 n) {
    if (!wanted) return;
    if constexpr (A::pattern == contiguous)
      fetch_row(p + 8192, n * A::size);
    else if constexpr (A::pattern == strided)
      fetch_strided(p, stride, n);
  }
  template <class A> static KM_INL void open(Stage& stage, char*& local, i64& m) {
    if constexpr (A::pattern == contiguous) {
      local = stage.open(local);
      m = smaller(m, stage.room() / A::size);
    }
  }
  // One row, computed piece by piece in the first-level cache and streamed out.  Strided outputs
  // are written in place.
  template <int... K, int... J>
  static KM_HOT void streamed_row(const Op& op, i64 n, char* const* p, const i64* s, Stage* stages,
                                  int fetched, indices<K...>, indices<J...>) {
    for (i64 done = 0, m; done < n; done += m) {
      char* local[operands];
      m = n - done;
      for (int k = 0; k < operands; k++) local[k] = p[k] + done * s[k];
      (open<O>(stages[J], local[inputs + J], m), ...);
      (fetch<I>(K == fetched, local[K], s[K], m), ...);
      row(op, m, local, s);
      ((stages[J].fill += O::pattern == contiguous ? m * O::size : 0), ...);
    }
  }
  static KM_COLD void finish(Stage* stages) {
    for (int k = 0; k < outputs; k++) stages[k].close();
    stream_fence();
  }

  // ---- the whole array: blocks of rows of the two innermost dimensions --------------------------

  struct Job {
    const Call* call;
    const Op& op;
    i64 rows, columns, height, width, bands, across, group;
    int fetched = -1;  // the only input that is read from memory
    i64 s[operands], down[operands];  // strides of the innermost dimension and of the one before

    KM_COLD Job(const Call* c, const Op& o) : call(c), op(o) {
      int last = c->ndim - 1;
      columns = last < 0 ? 1 : c->shape[last];
      rows = last < 1 ? 1 : c->shape[last - 1];
      for (int k = 0; k < operands; k++) {
        s[k] = last < 0 ? 0 : c->operands[k].strides[last];
        down[k] = last < 1 ? 0 : c->operands[k].strides[last - 1];
      }
      constexpr bool read[] = {(I::pattern != index)..., false};
      int moving = 0;
      for (int k = 0; k < inputs; k++)
        if (read[k] && s[k] && (rows == 1 || down[k])) moving++, fetched = k;
      if (moving > 1) fetched = -1;
      width = columns < 2 * task_elements ? columns : task_elements;
      height = larger(i64(1), task_elements / width);
      across = ceil_div(columns, width);
      bands = ceil_div(rows, height);
      group = larger(i64(1), task_elements / (smaller(rows, height) * width));
    }
    KM_INL i64 blocks() const { return bands * across * extent_of(call, 0, call->ndim - 2); }

    KM_COLD void block(i64 index, Stage* stages) const {
      char* p[operands];
      i64 left = index % across * width, top = index / across % bands * height;
      i64 h = smaller(height, rows - top), w = smaller(width, columns - left);
      for (int k = 0; k < operands; k++)
        p[k] = call->operands[k].data + left * s[k] + top * down[k];
      seek<operands>(call, 0, call->ndim - 2, index / (across * bands), p);
      for (; h > 0; h--) {
        if (stages)
          streamed_row(op, w, p, s, stages, fetched, indices_of<inputs>(), indices_of<outputs>());
        else
          row(op, w, p, s);
        for (int k = 0; k < operands; k++) p[k] += down[k];
      }
    }
    KM_COLD void operator()(i64 begin, i64 end) const {
      Stage stages[outputs];
      bool streams = call->flags & flag_stream;
      i64 last = smaller(end * group, blocks());
      for (i64 index = begin * group; index < last; index++)
        block(index, streams ? stages : nullptr);
      if (streams) finish(stages);
    }
  };

  // ---- inputs that are contiguous along the dimension before the innermost one: tiles ------------

  // A tile goes on over the next dimension where that continues the turned inputs in memory, and to
  // the side over one that continues all other operands.
  struct Tiles {
    static constexpr i64 size[] = {(I::pattern == transposed ? I::size : 0)..., O::size * 0 ...};
    static constexpr i64 all_sizes = (0 + ... + (I::pattern == transposed ? I::size : 0));
    static constexpr i64 width = tile_columns(turned);
    // The first tile may be a line wider, so that the others begin with one.
    static constexpr i64 wide = width + line_bytes / min_of(O::size..., line_bytes);
    static constexpr i64 room = tile_rows(all_sizes, width, true) * wide * all_sizes;

    const Call* call;
    const Op& op;
    i64 depth, inner, columns, rows, height, lead, across, bands, group;
    int last, outer, side = -1;  // dimensions: the innermost, those before a tile's, the one to the side
    bool streams, apart;
    i64 together = 1;  // rows that are worked on as one, since each begins where the last one ends
    i64 s[operands], down[operands], far[operands], aside[operands];
    i64 offset[operands];  // of an input in the turned tile

    KM_COLD Tiles(const Call* c, const Op& o)
        : call(c), op(o), last(c->ndim - 1), streams(c->flags & flag_stream) {
      depth = columns = c->shape[last];
      inner = rows = c->shape[last - 1];
      height = tile_rows(all_sizes, width, streams);
      bool merges = last > 1;
      i64 used = 0;
      for (int k = 0; k < operands; k++) {
        s[k] = size[k] ? size[k] : stride(k, last);
        down[k] = stride(k, last - 1);
        far[k] = last > 1 ? stride(k, last - 2) : 0;
        merges = merges && (!size[k] || far[k] == inner * size[k]);
        offset[k] = used;
        used += height * wide * size[k];
      }
      outer = merges ? last - 2 : last - 1;
      if (merges) rows *= c->shape[last - 2];
      find_side();
      lead = streams ? first_line() : 0;
      apart = streams && wide * max_of(O::size...) <= Stage::capacity &&
              down[inputs] != columns * s[inputs];
      across = larger(i64(1), ceil_div(columns - lead, width));
      bands = ceil_div(rows, height);
      group = larger(i64(1), task_elements / (smaller(rows, height) * width));
      bool adjoin = across == 1 && rows == inner;
      for (int k = 0; k < operands; k++) adjoin = adjoin && (size[k] || down[k] == columns * s[k]);
      if (adjoin) together = larger(i64(1), piece / columns);
    }
    // Elements from one row of the turned tile to the next.
    KM_INL i64 pitch(i64 w) const { return together > 1 ? w : wide; }
    KM_INL i64 stride(int k, int d) const { return call->operands[k].strides[d]; }
    KM_COLD void find_side() {
      for (int d = outer - 1; d >= 0 && side < 0; d--) {
        bool merges = true;
        for (int k = 0; k < operands; k++) merges = merges && (size[k] || stride(k, d) == depth * s[k]);
        if (merges) side = d;
      }
      if (side >= 0) columns *= call->shape[side];
      for (int k = 0; k < operands; k++) aside[k] = side < 0 ? 0 : stride(k, side);
    }
    // Columns before the first whole line of the first output, where all its rows agree on them.
    KM_COLD i64 first_line() const {
      i64 skip = -(i64)(uptr)call->operands[inputs].data & (line_bytes - 1), all = 0;
      constexpr i64 each[] = {O::size...};
      for (int d = 0; d < last; d++)
        if (d != side) all |= stride(inputs, d);
      bool agree = s[inputs] == each[0] && !(all & (line_bytes - 1)) && skip % each[0] == 0;
      return agree ? smaller(skip / each[0], columns) : 0;
    }
    KM_COLD i64 blocks() const {
      return bands * across * extent_of(call, 0, outer) / (side < 0 ? 1 : call->shape[side]);
    }

    // A tile and where it begins: turned inputs at its first row, the others at its corner.
    struct Place {
      char* p[operands];
      i64 top, left, h, w;
    };
    KM_COLD void find(i64 index, Place& at) const {
      i64 column = index / bands % across;
      at.top = index % bands * height;
      at.left = column ? lead + column * width : 0;
      at.h = smaller(height, rows - at.top);
      at.w = (column + 1 < across ? lead + (column + 1) * width : columns) - at.left;
      for (int k = 0; k < operands; k++)
        at.p[k] = call->operands[k].data +
                  (size[k] ? at.top * size[k]
                           : at.left * s[k] + at.top / inner * far[k] + at.top % inner * down[k]);
      index /= bands * across;
      for (int d = outer - 1; d >= 0; d--) {
        if (d == side) continue;
        for (int k = 0; k < operands; k++) at.p[k] += index % call->shape[d] * stride(k, d);
        index /= call->shape[d];
      }
    }
    template <class A> KM_INL void turn_operand(int k, const Place& at, char* turns) const {
      if constexpr (A::pattern == transposed) {
        for (i64 x = at.left, end = at.left + at.w, n; x < end; x += n) {
          i64 in = x % depth;
          n = smaller(depth - in, end - x);
          turn<(int)A::size>(turns + offset[k] + (x - at.left) * A::size, pitch(at.w) * A::size,
                             at.p[k] + x / depth * aside[k] + in * stride(k, last), stride(k, last), at.h, n);
        }
      }
    }
    template <int... K> KM_INL void turn_all(const Place& at, char* turns, indices<K...>) const {
      (turn_operand<I>(K, at, turns), ...);
    }
    // Asks, while row r of a tile is worked on, for its share of the lines of the next one.
    template <class A> KM_INL void fetch_operand(int k, const Place& next, i64 r) const {
      if constexpr (A::pattern == transposed) {
        constexpr i64 a_line = A::size < line_bytes ? line_bytes / A::size : 1;
        i64 share = ceil_div(next.w, a_line), x = next.left + r % a_line * share;
        i64 over = side < 0 ? 0 : x / depth, in = x - over * depth, step = stride(k, last);
        i64 end = smaller(x + share, next.left + next.w), wrap = aside[k] - depth * step;
        const char* from = next.p[k] + over * aside[k] + in * step + r * A::size;
        for (; x < end; x++, from += step) {
          __builtin_prefetch(from, 0, 2);
          if (++in == depth) in = 0, from += wrap;
        }
      } else if constexpr (A::pattern == contiguous) {
        if (rows == inner) fetch_row(next.p[k] + r * down[k], next.w * A::size);
      }
    }
    template <int... K> KM_INL void fetch_all(const Place& next, i64 r, indices<K...>) const {
      (fetch_operand<I>(K, next, r), ...);
    }
    // A row that no other one adjoins: in one piece, and out.
    template <class A> KM_INL void open_apart(Stage& stage, char*& local) const {
      if constexpr (A::pattern == contiguous) local = stage.block + ((uptr)local & (line_bytes - 1));
    }
    template <class A> KM_INL void close_apart(Stage& stage, char* to, i64 n) const {
      if constexpr (A::pattern == contiguous) {
        i64 skip = (i64)((uptr)to & (line_bytes - 1));
        stream_part(to - skip, stage.block, skip, skip + n * A::size);
      }
    }
    template <int... J>
    KM_INL void separate_row(i64 n, char* const* p, Stage* stages, indices<J...>) const {
      char* local[operands];
      for (int k = 0; k < operands; k++) local[k] = p[k];
      (open_apart<O>(stages[J], local[inputs + J]), ...);
      row(op, n, local, s);
      (close_apart<O>(stages[J], p[inputs + J], n), ...);
    }
    KM_HOT void tile(const Place& at, const Place* next, char* turns, Stage* stages) const {
      char* p[operands];
      i64 y = at.top % inner;
      for (int k = 0; k < operands; k++) p[k] = size[k] ? turns + offset[k] : at.p[k];
      turn_all(at, turns, indices_of<inputs>());
      const i64 step = pitch(at.w);
      for (i64 r = 0, m; r < at.h; r += m) {
        m = smaller(together, at.h - r);
        if (apart)
          separate_row(at.w, p, stages, indices_of<outputs>());
        else if (streams)
          streamed_row(op, m * at.w, p, s, stages, -1, indices_of<inputs>(), indices_of<outputs>());
        else
          row(op, m * at.w, p, s);
        if (next)
          for (i64 n = r; n < smaller(r + m, next->h); n++) fetch_all(*next, n, indices_of<inputs>());
        y += m;
        bool wraps = y == inner;
        for (int k = 0; k < operands; k++)
          p[k] += size[k] ? m * step * size[k] : m * down[k] + (wraps ? far[k] - inner * down[k] : 0);
        if (wraps) y = 0;
      }
    }
    KM_COLD void operator()(i64 begin, i64 end) const {
      alignas(64) char turns[room];
      Stage stages[outputs];
      constexpr i64 kept = tiles_ahead + 1;
      Place places[kept];
      i64 first = begin * group, stop = smaller(end * group, blocks());
      for (i64 index = first; index < smaller(first + tiles_ahead, stop); index++)
        find(index, places[index % kept]);
      for (i64 index = first; index < stop; index++) {
        Place& next = places[(index + tiles_ahead) % kept];
        bool more = index + tiles_ahead < stop;
        if (more) find(index + tiles_ahead, next);
        tile(places[index % kept], more && streams ? &next : nullptr, turns, stages);
      }
      if (streams) finish(stages);
    }
  };

  template <class Work> static KM_INL void work(const Call* call, const Op& op) {
    Work all(call, op);
    for_tasks(call, ceil_div(all.blocks(), all.group), all);
  }
  static KM_INL void run(const Call* call, const Op& op) {
    if constexpr (turned != 0)
      work<Tiles>(call, op);
    else
      work<Job>(call, op);
  }
};

}  // namespace km
