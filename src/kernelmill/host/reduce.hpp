// reduce.hpp - one pass over the inputs, one or several folds, any axes: which elements make a
// chunk, tasks, results. The order inside a chunk is in reduce_tree.hpp and reduce_ordered.hpp, the
// well-known folds are in fold.hpp.
//
//   km::reduce<km::form, Map, km::in<km::arg<T, pattern>...>, km::folds<F...>>
//       ::run(call, map, F...);
//
// Map turns the inputs of one index into the accumulator value of each fold (one value or a
// km::tupleN); it derives from km::mapped, or is km::same<T>.  Dimensions of the call, outermost
// first: kept ones (flags bits 8-15 say how many), then reduced ones in the order of the tree, at
// least one; km::columns has one more kept dimension at the end.  An operand is one input, or the
// output of one fold (stride 0 along reduced dimensions).  No extent is 0.
//
// Workspace: with m reduced elements a result and c = ceil(m / 16384) > 1, the sum over the folds
// of round_up_64(results * c * sizeof(acc)) bytes, aligned to 64; otherwise none.
#pragma once
#include "reduce_ordered.hpp"
#include "reduce_packed.hpp"

namespace km {

enum Form : int {
  rows,     // the innermost dimension is the only reduced one
  runs,     // several reduced dimensions, the innermost one last
  columns,  // the innermost dimension is kept: many columns at once
};
template <class... F> struct folds {};

constexpr i64 kept_shift = 8, task_elements_reduced = 32768, piece_elements = 4096,
              rows_at_once = 64;
// Accumulators of one fold over a block of columns, all lanes side by side.
constexpr i64 lane_bytes = 32768;
// One row of accumulators where the tree is walked depth first.  Long rows keep the processor's own
// prefetching at work; several folds read the rows again, from the second-level cache.
constexpr i64 row_bytes(int folds) { return folds == 1 ? 32768 : 4096; }
constexpr i64 rows_deep = 10, columns_deep = 256;
KM_INL i64 round_up_64(i64 bytes) { return (bytes + 63) & ~i64(63); }

// The tree of one fold and how many columns it takes at once.
template <int Form, class Map, int K, int N, class F, class... I> struct fold_state {
  typedef typename F::acc A;
  typedef tree_of<F::ordered, Map, K, N, F, I...> tree;
  static constexpr i64 size = (i64)sizeof(A);
  static constexpr i64 wide =
      Form == columns ? larger(lane_bytes / (tree::slots * size), i64(8)) : 1;
  static constexpr i64 deep = Form == columns ? larger(row_bytes(N) / size, i64(16)) : 1;
  static constexpr i64 wide_bytes = (tree::slots * wide * size + 63) / 64 * 64,
                       deep_bytes = rows_deep * deep * size;
};

template <class F>
KM_HOT void store_results(const F& fold, const typename F::acc* acc, i64 n, char* to, i64 stride) {
  const F f = fold;
  for (i64 j = 0; j < n; j++) element<typename F::out>::store(to + j * stride, f.finish(acc[j]));
}

// Adjacent pairs over `count` rows of `width` accumulators; the result is in row 0.
template <int Form, class Tree, class F>
KM_COLD void join_chunks(const F& f, typename F::acc* acc, i64 count,
                         [[maybe_unused]] i64 width) {
  for (i64 step = 1; step < count; step *= 2)
    for (i64 i = 0; i + step < count; i += 2 * step)
      if constexpr (Form == columns)
        Tree::pair(f, acc + i * width, acc + (i + step) * width, width);
      else
        acc[i] = f(acc[i], acc[i + step]);
}

template <int K, class F> struct fold_slot {
  const F& fold;
};

template <int Form, class Map, class In, class Folds, class Numbers> struct reduction;
template <int Form, class Map, class... I, class... F, int... K>
struct reduction<Form, Map, in<I...>, folds<F...>, indices<K...>> {
  static constexpr int inputs = (int)sizeof...(I), outputs = (int)sizeof...(F),
                       operands = inputs + outputs;
  template <int J, class G> using state = fold_state<Form, Map, J, outputs, G, I...>;

  // Accumulators of one block: of all folds side by side, or of one fold after the other where the
  // trees are deep.
  static constexpr i64 together = (state<K, F>::wide_bytes + ...);
  static constexpr i64 memory =
      Form == columns ? larger(together, max_of(state<K, F>::deep_bytes...)) : together;
  static constexpr i64 fewest_lanes = min_of(sizeof(typename F::acc) <= 4 ? 64 : 32 ...);
  template <int J> static constexpr i64 offset() {
    constexpr i64 bytes[] = {state<K, F>::wide_bytes...};
    i64 sum = 0;
    for (int k = 0; k < J; k++) sum += bytes[k];
    return sum;
  }
  static constexpr i64 largest = max_of(sizeof(typename F::acc)...),
                       gathered_bytes = larger(i64(131072), (chunk_elements + 48) * largest);
  static constexpr bool whole_rows = Form == rows && (!F::ordered && ...);
  // Runs are gathered into one sequence, a chunk at a time.
  static constexpr bool gathers = Form == runs && (!F::ordered && ...) && largest <= 16;
  // Folds over the same elements that can share each load.
  static constexpr bool packed() {
    if constexpr (whole_rows && outputs > 1)
      return (state<K, F>::tree::packed && ...) &&
             min_of(state<K, F>::size...) == max_of(state<K, F>::size...);
    else
      return false;
  }

  struct Job : fold_slot<K, F>... {
    const Call* call;
    const Map& map;
    int kept, last;  // reduced dimensions are [kept, last], the last one is the fastest
    i64 elements, rows_kept, columns_kept, width, blocks, chunks, group;
    i64 s[operands], down[operands];  // from column to column, from element to element
    bool deep;
    char* parts[outputs];

    KM_COLD Job(const Call* c, const Map& m, const F&... f)
        : fold_slot<K, F>{f}..., call(c), map(m) {
      kept = (int)(c->flags >> kept_shift & 255);
      last = c->ndim - (Form == columns ? 2 : 1);
      elements = extent_of(c, kept, last + 1);
      rows_kept = extent_of(c, 0, kept);
      columns_kept = Form == columns ? c->shape[last + 1] : 1;
      chunks = ceil_div(elements, chunk_elements);
      width = 1;
      deep = Form == columns && columns_kept >= columns_deep && (!F::ordered && ...);
      if (Form == columns) {  // narrower blocks when there would be too few of them for the threads
        width = columns_kept;
        ((width = smaller(width, deep ? state<K, F>::deep : state<K, F>::wide)), ...);
        i64 share = ceil_div(columns_kept * rows_kept * chunks, 4 * c->threads);
        if (c->threads > 1) width = smaller(width, larger(i64(16), (share + 15) & ~i64(15)));
      }
      blocks = ceil_div(columns_kept, width);
      for (int k = 0; k < operands; k++) {
        down[k] = c->operands[k].strides[last];
        s[k] = c->operands[k].strides[c->ndim - 1];
      }
      group = larger(i64(1), task_elements_reduced / (smaller(elements, chunk_elements) * width));
      char* next = (char*)c->workspace;
      const i64 size[] = {(i64)sizeof(typename F::acc)...};
      for (int k = 0; k < outputs; k++) {
        parts[k] = next;
        next += round_up_64(rows_kept * columns_kept * chunks * size[k]);
      }
    }
    // Whether w columns of one element end where those of the next begin, in every input.
    KM_INL bool adjoin(i64 w) const {
      bool all = true;
      for (int k = 0; k < inputs; k++) all = all && down[k] == w * s[k];
      return all;
    }
    KM_INL i64 units() const { return rows_kept * blocks * chunks; }
    template <int J, class G> KM_INL const G& fold() const { return fold_slot<J, G>::fold; }
    template <int J, class G> static KM_INL typename G::acc* acc(char* trees) {
      return (typename G::acc*)(trees + offset<J>());
    }
    template <int J, class G> KM_INL typename G::acc* part(i64 row, i64 chunk) const {
      return (typename G::acc*)parts[J] + (row * chunks + chunk) * columns_kept;
    }

    // Elements q ... q + n - 1 of a chunk, adjacent along the innermost reduced dimension, into
    // every fold.
    KM_INL void feed(char* trees, i64 q, i64 n, i64 w, char** p) const {
      i64 piece = larger(i64(256), piece_elements / w);
      for (i64 done = 0; done < n; done += piece) {
        i64 m = smaller(piece, n - done);
        (state<K, F>::tree::feed(map, fold<K, F>(), acc<K, F>(trees), q + done, m, w, adjoin(w), p,
                                 s, down),
         ...);
        for (int k = 0; k < inputs; k++) p[k] += m * down[k];
      }
    }
    KM_INL void chunk(char* trees, i64 low, i64 high, i64 w, char* const* base) const {
      i64 extent = call->shape[last];
      for (i64 at = low, n; at < high; at += n) {
        char* p[operands];
        for (int k = 0; k < operands; k++) p[k] = base[k];
        i64 first = at;
        if (Form == rows || last == kept) {
          n = high - low;
        } else {
          first = at % extent;
          n = smaller(extent - first, high - at);
          seek<operands>(call, kept, last, at / extent, p);
        }
        for (int k = 0; k < inputs; k++) p[k] += first * down[k];
        feed(trees, at - low, n, w, p);
      }
    }
    // Element i of the sequence: for all inputs, where its first column lies.
    KM_COLD void locate(i64 i, char* const* base, char** p) const {
      for (int k = 0; k < operands; k++) p[k] = base[k];
      i64 extent = call->shape[last];
      if (last > kept) {
        seek<operands>(call, kept, last, i / extent, p);
        i %= extent;
      }
      for (int k = 0; k < inputs; k++) p[k] += i * down[k];
    }
    // Node (j, step) of a chunk's tree: the lanes j, j + step, j + 2 step ... combined, into acc.
    // Depth first and four children at a time, so that many columns need a few rows of accumulators
    // only.
    template <int J, class G>
    KM_COLD void descend(typename G::acc* acc, i64 low, i64 n, i64 j, i64 step, i64 w,
                         char* const* base) const {
      typedef typename state<J, G>::tree tree;
      const G& f = fold<J, G>();
      char* p[4][operands];
      int levels =
          63 - __builtin_clzll((u64)(2 * smaller(n, tree::L) - 1));  // of pairs, over all lanes
      i64 children = 0, next = step == 1 && levels % 2 ? 2 : 4;      // fours at the elements
      if (step == tree::L) {                                         // one lane, from left to right
        for (i64 i = j; i < n; i += children * tree::L) {
          children = i > j && i + 3 * tree::L < n ? 4 : 1;
          for (i64 k = 0; k < children; k++) locate(low + i + k * tree::L, base, p[k]);
          if (children == 4)
            tree::combine_four(map, f, acc, w, true, p[0], p[1], p[2], p[3], s);
          else
            tree::combine(map, f, acc, w, i == j, p[0], s);
        }
        return;
      }
      if (next == 4 && j + 4 * step >= smaller(n, tree::L) &&
          (tree::direct || j + tree::L >= n)) {  // the children are lanes, mostly single elements
        do {
          i64 lane = j + children * step;
          if (lane + tree::L < n) {
            p[children][0] = (char*)(acc + children * w);
            descend<J, G>(acc + children * w, low, n, lane, tree::L, w, base);
          } else {
            locate(low + lane, base, p[children]);
          }
        } while (++children < 4 && j + children * step < smaller(n, tree::L));
        if (children == 4)
          return tree::combine_four(map, f, acc, w, false, p[0], p[1], p[2], p[3], s);
        tree::combine(map, f, acc, w, true, p[0], s);
        if (children > 2) tree::combine(map, f, acc, w, false, p[2], s);
        if (children > 1) tree::combine(map, f, acc, w, false, p[1], s);
        return;
      }
      for (; children < next && j + children * step < smaller(n, tree::L); children++)
        descend<J, G>(acc + children * w, low, n, j + children * step, next * step, w, base);
      if (children == 4) return tree::join_four(f, acc, w);
      for (i64 half = next / 2; half > 0; half /= 2)
        for (i64 k = 0; k < half && k + half < children; k++)
          tree::pair(f, acc + k * w, acc + (k + half) * w, w);
    }
    template <int J, class G>
    KM_INL void keep(const typename G::acc* acc, i64 row, i64 chunk, i64 column, i64 w,
                     char* to) const {
      if (chunks == 1)
        store_results(fold<J, G>(), acc, w, to, s[inputs + J]);
      else
        __builtin_memcpy((void*)(part<J, G>(row, chunk) + column), (const void*)acc,
                         (usize)w * sizeof(*acc));
    }
    template <int J, class G>
    KM_INL void close(char* trees, i64 row, i64 chunk, i64 column, i64 n, i64 w, char* to) const {
      state<J, G>::tree::close(fold<J, G>(), acc<J, G>(trees), n, w);
      keep<J, G>(acc<J, G>(trees), row, chunk, column, w, to);
    }
    // A short chunk whose rows adjoin: the elements are read straight into the second level of the
    // tree.
    template <int J, class G>
    KM_INL void short_chunk(char* trees, i64 row, i64 chunk, i64 column, i64 n, i64 w,
                            char* const* p) const {
      typedef typename state<J, G>::tree tree;
      if constexpr (tree::paneled) {
        if (w >= tree::panel) {
          tree::panels(fold<J, G>(), acc<J, G>(trees), n, w, p[0], down[0]);
          return keep<J, G>(acc<J, G>(trees), row, chunk, column, w, p[inputs + J]);
        }
      }
      if constexpr (G::ordered)
        tree::feed(map, fold<J, G>(), acc<J, G>(trees), 0, n, w, true, p, s, down);
      else
        n = tree::first_levels(map, fold<J, G>(), acc<J, G>(trees), n, w, p, s, down);
      close<J, G>(trees, row, chunk, column, n, w, p[inputs + J]);
    }
    template <int J, class G>
    KM_INL void descend_all(char* trees, i64 row, i64 chunk, i64 column, i64 n, i64 w,
                            char* const* p) const {
      if constexpr (!G::ordered) {
        typename G::acc* rows = (typename G::acc*)trees;
        descend<J, G>(rows, chunk * chunk_elements, n, 0, 1, w, p);
        keep<J, G>(rows, row, chunk, column, w, p[inputs + J]);
      }
    }

    // Sequences that follow each other along the last kept dimension, a few at once.
    template <int J, class G>
    KM_INL void keep_rows(const typename G::acc* results, i64 row, i64 chunk, i64 count,
                          char* const* p, const i64* step) const {
      if (chunks == 1)
        store_results(fold<J, G>(), results, count, p[inputs + J], step[inputs + J]);
      else
        *part<J, G>(row, chunk) = results[0];
    }
    template <int J, class G>
    KM_INL void fold_rows(i64 row, i64 chunk, i64 count, i64 n, char* const* p,
                          const i64* step) const {
      typename G::acc results[rows_at_once];
      state<J, G>::tree::each_whole(map, fold<J, G>(), results, count, n, p, s, step);
      keep_rows<J, G>(results, row, chunk, count, p, step);
    }
    KM_INL void fold_packed(i64 row, i64 chunk, i64 count, i64 n, char* const* p,
                            const i64* step) const {
      typedef packed_bank<packed_lanes<K, F, typename state<K, F>::tree>...> bank;
      alignas(16) char results[outputs][rows_at_once * 8];
      bank::template each_whole<Map, reader<I>...>(
          map, fold<K, F>()..., (typename F::acc*)results[K]..., count, n, p[0], step[0]);
      (keep_rows<K, F>((const typename F::acc*)results[K], row, chunk, count, p, step), ...);
    }
    KM_INL void each_row(i64 begin, i64 stop) const {
      alignas(64) char values[gathers ? gathered_bytes : 1];
      i64 extent = kept && chunks == 1 ? call->shape[kept - 1] : 1;
      i64 most = clamp((gathers ? gathered_bytes / largest : piece_elements) / (elements + 48), 1,
                       rows_at_once),
          count;
      i64 step[operands];
      for (int k = 0; k < operands; k++) step[k] = kept ? call->operands[k].strides[kept - 1] : 0;
      for (i64 unit = begin; unit < stop; unit += count) {
        i64 c = unit % chunks, row = unit / chunks, low = c * chunk_elements,
            n = smaller(chunk_elements, elements - low);
        count = smaller(smaller(most, stop - unit), extent - row % extent);
        char* p[operands];
        for (int k = 0; k < operands; k++)
          p[k] = call->operands[k].data + (k < inputs && !gathers ? low * s[k] : 0);
        seek<operands>(call, 0, kept, row, p);
        if constexpr (gathers)
          (fold_gathered<K, F>(values, row, c, count, n, p, step), ...);
        else if constexpr (packed())
          fold_packed(row, c, count, n, p, step);
        else
          (fold_rows<K, F>(row, c, count, n, p, step), ...);
      }
    }
    // Gathered sequences do not start at the same places of the cache.
    static KM_INL i64 pitch(i64 n) { return n + 48; }
    // The elements of `count` sequences, `step` apart, run by run: neighbours in memory are read
    // one after the other.
    template <int J, class G>
    KM_HOT void gather(typename G::acc* to, i64 low, i64 n, i64 count, char* const* base,
                       const i64* step) const {
      i64 extent = call->shape[last], beside = call->shape[last - 1], first = low % extent;
      for (i64 i = low, end = low + n; i < end;) {
        i64 run = i / extent;
        char *p[operands], *q[operands];
        for (int k = 0; k < operands; k++) p[k] = base[k] + (k < inputs ? first * down[k] : 0);
        seek<operands>(call, kept, last, run, p);
        for (i64 r = run % beside; r < beside && i < end; r++) {
          i64 m = smaller(extent - first, end - i);
          for (int k = 0; k < inputs; k++) q[k] = p[k];
          for (i64 row = 0; row < count; row++) {
            for (int k = 0; k < inputs; k++) {
              const char* next = q[k] + 2 * call->operands[k].strides[last - 1];  // two runs ahead
              for (i64 b = 0; b < m * down[k]; b += 64) __builtin_prefetch(next + b);
            }
            state<J, G>::tree::copy(map, to + row * pitch(n), m, q, s);
            for (int k = 0; k < inputs; k++) q[k] += step[k];
          }
          to += m;
          i += m;
          for (int k = 0; k < inputs; k++)
            p[k] += call->operands[k].strides[last - 1] - first * down[k];
          first = 0;
        }
      }
    }
    template <int J, class G>
    KM_INL void fold_gathered(char* values, i64 row, i64 chunk, i64 count, i64 n, char* const* p,
                              const i64* step) const {
      typedef typename G::acc A;
      typedef lane_tree<same<A>, 0, 1, G, arg<A, contiguous>> tree;
      if (J == 0 || !Map::plain)
        gather<J, G>((A*)values, chunk * chunk_elements, n, count, p, step);
      A results[rows_at_once];
      const i64 size = sizeof(A), length = pitch(n) * size;
      tree::each_whole(same<A>(), fold<J, G>(), results, count, n, &values, &size, &length);
      keep_rows<J, G>(results, row, chunk, count, p, step);
    }
    KM_INL void each_unit(i64 begin, i64 stop) const {
      alignas(64) char trees[memory];
      for (i64 unit = begin; unit < stop; unit++) {
        i64 c = unit % chunks, column = unit / chunks % blocks * width,
            row = unit / (chunks * blocks);
        i64 w = smaller(width, columns_kept - column), low = c * chunk_elements;
        i64 n = smaller(elements - low, chunk_elements);
        char* p[operands];
        for (int k = 0; k < operands; k++)
          p[k] = call->operands[k].data + (Form == columns ? column * s[k] : 0);
        seek<operands>(call, 0, kept, row, p);
        if (Form == columns && deep) {
          (descend_all<K, F>(trees, row, c, column, n, w, p), ...);
        } else if (Form == columns && adjoin(w) && last == kept && n > 2 && n <= fewest_lanes) {
          for (int k = 0; k < inputs; k++) p[k] += low * down[k];
          (short_chunk<K, F>(trees, row, c, column, n, w, p), ...);
        } else {
          chunk(trees, low, low + n, w, p);
          (close<K, F>(trees, row, c, column, n, w, p[inputs + K]), ...);
        }
      }
    }
    KM_COLD void operator()(i64 begin, i64 end) const {
      i64 stop = smaller(end * group, units());
      if constexpr (whole_rows || gathers)
        each_row(begin * group, stop);
      else
        each_unit(begin * group, stop);
    }
    // The tree over the chunks of each result.
    KM_COLD void finish() const {
      for (i64 row = 0; row < rows_kept; row++) {
        char* p[operands];
        for (int k = 0; k < operands; k++) p[k] = call->operands[k].data;
        seek<operands>(call, 0, kept, row, p);
        (join_chunks<Form, typename state<K, F>::tree>(fold<K, F>(), part<K, F>(row, 0), chunks,
                                                       columns_kept),
         ...);
        (store_results(fold<K, F>(), part<K, F>(row, 0), columns_kept, p[inputs + K],
                       s[inputs + K]),
         ...);
      }
    }
  };
};

template <int Form, class Map, class In, class Folds> struct reduce;
template <int Form, class Map, class... I, class... F>
struct reduce<Form, Map, in<I...>, folds<F...>> {
  static KM_INL void run(const Call* call, const Map& map, const F&... fold) {
    typedef reduction<Form, Map, in<I...>, folds<F...>, indices_of<(int)sizeof...(F)>> pass;
    typename pass::Job job(call, map, fold...);
    for_tasks(call, ceil_div(job.units(), job.group), job);
    if (job.chunks > 1) job.finish();
  }
};

}  // namespace km
