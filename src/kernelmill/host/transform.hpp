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

// An operator and its quick form, which is right unless its member `far` is set afterwards
// (near.hpp).
template <class Exact, class Near> struct guarded {
  Exact exact;
  Near near;
  KM_INL explicit guarded(const void* packed) : exact(packed), near(packed) {}
};
constexpr i64 guarded_elements = 512;

template <class Op, class In, class Out> struct transform;

template <class Op, class... I, class... O> struct transform<Op, in<I...>, out<O...>> {
  static constexpr int inputs = (int)sizeof...(I), outputs = (int)sizeof...(O),
                       operands = inputs + outputs;
  static constexpr i64 largest = max_of(O::size...);
  static constexpr i64 turned = max_of(I::pattern == transposed ? I::size : 0 ...);

  // ---- one row -----------------------------------------------------------------------------------

  template <class Plain, int... J>
  static KM_INL void sweep(const Plain op, i64 n, indices<J...>, writer<O>... to,
                           reader<I>... from) {
    KM_IVDEP
    for (i64 i = 0; i < n; i++) {
      const auto value = op(from[i]...);
      (to.put(i, result<J, outputs>(value)), ...);
    }
  }
  template <class Plain, int... K, int... J>
  static KM_INL void unpack(const Plain& op, i64 n, char* const* p, const i64* s, indices<K...>,
                            indices<J...> each) {
    sweep(op, n, each, writer<O>(p[inputs + J], s[inputs + J])..., reader<I>(p[K], s[K])...);
  }
  template <class Plain>
  static KM_HOT void row(const Plain& op, i64 n, char* const* p, const i64* s) {
    unpack(op, n, p, s, indices_of<inputs>(), indices_of<outputs>());
  }

  // A guarded operator: piece by piece in its quick form into the first-level cache, then out, or
  // once more in its exact form. Nothing is written before it is known which, so an output may be
  // an input.
  template <class Near, int... J>
  static KM_INL u32 near_sweep(const Near near, i64 n, indices<J...>,
                               writer<arg<typename O::type, contiguous>>... to, reader<I>... from) {
    KM_IVDEP
    for (i64 i = 0; i < n; i++) {
      const auto value = near(from[i]...);
      (to.put(i, result<J, outputs>(value)), ...);
    }
    return near.far;
  }
  template <class Near, int... K, int... J>
  static KM_HOT u32 near_row(const Near& near, i64 n, char* const* p, const i64* s,
                             char (*made)[guarded_elements * largest], indices<K...>,
                             indices<J...> each) {
    return near_sweep(near, n, each, writer<arg<typename O::type, contiguous>>(made[J], O::size)...,
                      reader<I>(p[K], s[K])...);
  }
  template <class A> static KM_INL void put(char* to, i64 stride, const char* from, i64 n) {
    if (A::pattern == contiguous)
      __builtin_memcpy(to, from, (usize)(n * A::size));
    else
      for (i64 i = 0; i < n; i++) __builtin_memcpy(to + i * stride, from + i * A::size, A::size);
  }
  template <int... J>
  static KM_INL void put_all(char* const* p, const i64* s, char (*made)[guarded_elements * largest],
                             i64 n, indices<J...>) {
    (put<O>(p[inputs + J], s[inputs + J], made[J], n), ...);
  }
  template <class Exact, class Near>
  static KM_COLD void row(const guarded<Exact, Near>& op, i64 n, char* const* p, const i64* s) {
    alignas(64) char made[outputs][guarded_elements * largest];
    char* at[operands];
    for (int k = 0; k < operands; k++) at[k] = p[k];
    for (i64 done = 0, m; done < n; done += m) {
      m = smaller(guarded_elements, n - done);
      if (near_row(op.near, m, at, s, made, indices_of<inputs>(), indices_of<outputs>()))
        row(op.exact, m, at, s);
      else
        put_all(at, s, made, m, indices_of<outputs>());
      for (int k = 0; k < operands; k++) at[k] += m * s[k];
    }
  }

  // ---- the whole array: blocks of rows of the two innermost dimensions --------------------------

  struct Job {
    const Call* call;
    const Op& op;
    i64 rows, columns, height, width, bands, across, group;
    i64 s[operands], down[operands];  // strides of the innermost dimension and of the one before

    KM_COLD Job(const Call* c, const Op& o) : call(c), op(o) {
      int last = c->ndim - 1;
      columns = last < 0 ? 1 : c->shape[last];
      rows = last < 1 ? 1 : c->shape[last - 1];
      for (int k = 0; k < operands; k++) {
        s[k] = last < 0 ? 0 : c->operands[k].strides[last];
        down[k] = last < 1 ? 0 : c->operands[k].strides[last - 1];
      }
      width =
          turned ? tile_columns(turned) : (columns < 2 * task_elements ? columns : task_elements);
      height = turned ? tile_rows(turned) : larger(i64(1), task_elements / width);
      across = ceil_div(columns, width);
      bands = ceil_div(rows, height);
      group = larger(i64(1), task_elements / (smaller(rows, height) * width));
    }
    KM_INL i64 blocks() const { return bands * across * extent_of(call, 0, call->ndim - 2); }

    // One row, computed piece by piece in the first-level cache and streamed out.  Strided outputs
    // are written in place.
    KM_COLD void streamed_row(i64 n, char* const* p, Stage* stages) const {
      constexpr i64 staged[] = {I::size * 0 ..., (O::pattern == contiguous ? O::size : 0)...};
      constexpr i64 turned_size[] = {(I::pattern == transposed ? I::size : 0)..., O::size * 0 ...};
      for (i64 done = 0, m; done < n; done += m) {
        char* local[operands];
        m = n - done;
        for (int k = 0; k < operands; k++) {
          local[k] = p[k] + done * (turned_size[k] ? turned_size[k] : s[k]);
          if (!staged[k]) continue;
          Stage& stage = stages[k - inputs];
          local[k] = stage.open(local[k]);
          m = smaller(m, stage.room() / staged[k]);
        }
        row(op, m, local, s);
        for (int k = inputs; k < operands; k++) stages[k - inputs].fill += m * staged[k];
      }
    }

    // Asks for the next tile, then turns the transposed operands of this one.
    template <class A>
    KM_INL void turn_operand(int k, char** p, i64* step, i64 h, i64 w,
                             char (*turns)[tile_bytes]) const {
      if constexpr (A::pattern == transposed) {
        prefetch(p[k] + w * s[k], s[k], w, h * A::size);
        turn<(int)A::size>(turns[k], width, p[k], s[k], h, w);
        p[k] = turns[k];
        step[k] = width * A::size;
      } else if constexpr (A::pattern == contiguous) {
        prefetch(p[k] + w * s[k], down[k], h, w * A::size);
      }
    }
    template <int... K>
    KM_INL void turn_operands(char** p, i64* step, i64 h, i64 w, char (*turns)[tile_bytes],
                              indices<K...>) const {
      (turn_operand<I>(K, p, step, h, w, turns), ...);
    }
    KM_COLD void block(i64 index, Stage* stages, char (*turns)[tile_bytes]) const {
      char* p[operands];
      i64 step[operands], left = index % across * width, top = index / across % bands * height;
      i64 h = smaller(height, rows - top), w = smaller(width, columns - left);
      for (int k = 0; k < operands; k++) {
        p[k] = call->operands[k].data + left * s[k] + top * down[k];
        step[k] = down[k];
      }
      seek<operands>(call, 0, call->ndim - 2, index / (across * bands), p);
      if constexpr (turned != 0) turn_operands(p, step, h, w, turns, indices_of<inputs>());
      for (; h > 0; h--) {
        if (stages)
          streamed_row(w, p, stages);
        else
          row(op, w, p, s);
        for (int k = 0; k < operands; k++) p[k] += step[k];
      }
    }
    KM_COLD void operator()(i64 begin, i64 end) const {
      Stage stages[outputs];
      alignas(64) char turns[turned ? inputs : 1][tile_bytes];
      // Rows of a tile are too short for whole lines to pay.
      bool streams = (call->flags & flag_stream) && !turned;
      i64 last = smaller(end * group, blocks());
      for (i64 index = begin * group; index < last; index++)
        block(index, streams ? stages : nullptr, turns);
      if (!streams) return;
      for (Stage& stage : stages)
        if (stage.line) stage.close();
      stream_fence();
    }
  };

  static KM_INL void run(const Call* call, const Op& op) {
    Job job(call, op);
    for_tasks(call, ceil_div(job.blocks(), job.group), job);
  }
};

}  // namespace km
