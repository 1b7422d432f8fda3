// reduce.hpp - one pass over the inputs, one or several folds, any axes: which elements make a
// chunk, tasks, results. The order inside a chunk is in reduce_tree.hpp and reduce_ordered.hpp, how
// columns and runs are read in files of their own, the well-known folds in fold.hpp.
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
#include "reduce_columns.hpp"
#include "reduce_ordered.hpp"
#include "reduce_packed.hpp"
#include "reduce_runs.hpp"

namespace km {

enum Form : int {
  rows,     // the innermost dimension is the only reduced one
  runs,     // several reduced dimensions, the innermost one last
  columns,  // the innermost dimension is kept: many columns at once
};
template <class... F> struct folds {};

constexpr i64 kept_shift = 8, task_elements_reduced = 32768, piece_elements = 4096,
              rows_at_once = 64;
// Accumulators of all folds over a block of columns, lanes side by side, and over sequences side by
// side, which leave room for the elements in the first-level cache.
constexpr i64 lane_bytes = 65536, ordered_bytes = 32768, beside_bytes = 8192;
// A row of accumulators where a block is too wide for that and its tree is walked depth first.
// Long rows keep the processor's own prefetching at work; several folds read the rows again, from
// the second-level cache.
constexpr i64 row_bytes(bool one) { return one ? 16384 : 4096; }
constexpr i64 rows_deep = 17, page_bytes = 4096;
KM_INL i64 round_up_64(i64 bytes) { return (bytes + 63) & ~i64(63); }

// The tree of one fold and how many columns it takes at once.
template <bool Commutative, int Form, class Map, int K, int N, class F, class... I> struct tree_of;
template <class Map, int K, int N, class F, class... I>
struct tree_of<true, rows, Map, K, N, F, I...> : lane_tree<Map, K, N, F, I...> {};
template <class Map, int K, int N, class F, class... I>
struct tree_of<true, runs, Map, K, N, F, I...> : run_tree<Map, K, N, F, I...> {};
template <class Map, int K, int N, class F, class... I>
struct tree_of<true, columns, Map, K, N, F, I...> : column_tree<Map, K, N, F, I...> {};
template <int Form, class Map, int K, int N, class F, class... I>
struct tree_of<false, Form, Map, K, N, F, I...> : ordered_tree<Map, K, N, F, I...> {};

template <int Form, class Map, int K, int N, class F, class... I> struct fold_state {
  typedef typename F::acc A;
  typedef tree_of<!F::ordered, Form, Map, K, N, F, I...> tree;
  static constexpr i64 size = (i64)sizeof(A), one = tree::slots * size * N;
  static constexpr i64 wide =
      Form == columns ? larger((F::ordered ? ordered_bytes : lane_bytes) / one, i64(8))
      : Form == runs  ? clamp(beside_bytes / one, 1, rows_at_once)
                      : 1;
  static constexpr i64 deep = larger(row_bytes(N == 1 && Map::plain) / size, i64(16));
  static constexpr i64 wide_bytes = (tree::slots * wide * size + 63) / 64 * 64,
                       deep_bytes = rows_deep * deep * size;
};

template <class F>
KM_LOOP void store_results(const F& fold, const typename F::acc* acc, i64 n, char* to, i64 stride) {
  const F f = fold;
  for (i64 j = 0; j < n; j++) element<typename F::out>::store(to + j * stride, f.finish(acc[j]));
}

// Adjacent pairs over `count` rows of `width` accumulators; the result is in row 0.
template <int Form, class Tree, class F>
KM_DRIVER void join_chunks(const F& f, typename F::acc* acc, i64 count,
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

  static constexpr bool commutative = (!F::ordered && ...);
  static constexpr bool whole_rows = Form == rows && commutative,
                        beside = Form == runs && commutative,
                        blocks_of_columns = Form == columns && commutative;
  // Accumulators of one block: of all folds side by side, or of one fold after the other where the
  // trees are deep.
  static constexpr i64 together = (state<K, F>::wide_bytes + ...);
  static constexpr i64 apart = max_of(state<K, F>::deep_bytes...);
  static constexpr i64 memory = blocks_of_columns ? larger(together, apart) + page_bytes : together;
  static constexpr i64 widest = min_of(state<K, F>::wide...),
                       deepest = min_of(state<K, F>::deep...);
  static constexpr i64 fewest_lanes = min_of(sizeof(typename F::acc) <= 4 ? 64 : 32 ...);
  template <int J> static constexpr i64 offset() {
    constexpr i64 bytes[] = {state<K, F>::wide_bytes...};
    i64 sum = 0;
    for (int k = 0; k < J; k++) sum += bytes[k];
    return sum;
  }
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

    KM_DRIVER Job(const Call* c, const Map& m, const F&... f)
        : fold_slot<K, F>{f}..., call(c), map(m) {
      kept = (int)(c->flags >> kept_shift & 255);
      last = c->ndim - (Form == columns ? 2 : 1);
      elements = extent_of(c, kept, last + 1);
      rows_kept = extent_of(c, 0, kept);
      columns_kept = Form == columns ? c->shape[last + 1] : 1;
      chunks = ceil_div(elements, chunk_elements);
      width = 1;
      for (int k = 0; k < operands; k++) {
        down[k] = c->operands[k].strides[last];
        s[k] = c->operands[k].strides[c->ndim - 1];
      }
      deep = blocks_of_columns &&
             (columns_kept > widest || (elements <= fewest_lanes && !adjoin(columns_kept)));
      if (Form == columns) {  // narrower blocks when there would be too few of them for the threads
        width = smaller(columns_kept, deep ? deepest : widest);
        i64 share = ceil_div(columns_kept * rows_kept * chunks, 4 * c->threads);
        if (c->threads > 1) width = smaller(width, larger(i64(16), (share + 15) & ~i64(15)));
      }
      blocks = ceil_div(columns_kept, width);
      group = larger(i64(1), task_elements_reduced / (smaller(elements, chunk_elements) * width));
      if (beside) {
        i64 sequences = smaller(beside_each(), widest);
        group = larger(group, smaller(sequences, units() / (4 * c->threads)));
      }
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
    // Sequences that lie side by side: those of the last kept dimension.
    KM_INL i64 beside_each() const { return kept ? call->shape[kept - 1] : 1; }
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
    // Element i of the sequence: for all inputs, where its first column lies.  Returns how many
    // elements follow along the innermost dimension, with itself.
    KM_DRIVER i64 locate(i64 i, char* const* base, char** p) const {
      for (int k = 0; k < operands; k++) p[k] = base[k];
      i64 extent = call->shape[last];
      if (last > kept) {
        seek<operands>(call, kept, last, i / extent, p);
        i %= extent;
      }
      for (int k = 0; k < inputs; k++) p[k] += i * down[k];
      return extent - i;
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

    // Elements q ... q + n - 1 of a chunk, q a multiple of the lanes: rounds of as many elements as
    // there are lanes, some at once, as long as the rows of each of them adjoin.
    template <int J, class G>
    KM_DRIVER void fold_rounds(typename G::acc* acc, i64 low, i64 q, i64 n, i64 w,
                               char* const* base) const {
      typedef typename state<J, G>::tree tree;
      const bool dense = adjoin(w);
      for (i64 end = q + n; q < end; q += tree::rounds * tree::L) {
        char* p[tree::rounds][operands];
        i64 beyond[tree::rounds] = {};
        for (i64 lane = 0, m; lane < tree::L; lane += m) {
          i64 count = 0, i = q + lane;
          m = dense ? tree::L - lane : 1;
          for (; count < tree::rounds && i < end; count++, i += tree::L) {
            if (beyond[count] == 0) beyond[count] = locate(low + i, base, p[count]);
            m = smaller(m, smaller(beyond[count], end - i));
          }
          if (count == 0) break;
          tree::fold_rows(map, fold<J, G>(), acc + lane * w, m * w, q == 0, count, p, s,
                          q + 2 * tree::rounds * tree::L > end ? 0 : next_rounds<tree>());
          for (i64 c = 0; c < count; c++) {
            beyond[c] -= m;
            for (int k = 0; k < inputs; k++) p[c][k] += m * down[k];
          }
        }
      }
    }
    // About how far it is to the elements of the next rounds.
    template <class Tree> KM_INL i64 next_rounds() const {
      i64 step = Tree::rounds * Tree::L;
      return last == kept ? step * down[0]
                          : step / call->shape[last] * call->operands[0].strides[last - 1];
    }
    // Node (j, step) of a tree over n elements in `all` lanes: j, j + step, j + 2 step ...
    // combined, into acc.  Depth first and eight children at a time, so that many columns need a
    // few rows of accumulators only.
    template <int J, class G>
    KM_DRIVER void descend(typename G::acc* acc, i64 low, i64 n, i64 all, i64 j, i64 step, i64 w,
                           char* const* base) const {
      typedef typename state<J, G>::tree tree;
      constexpr i64 pitch = state<J, G>::deep;
      const G& f = fold<J, G>();
      const i64 end = smaller(n, all);
      char* rows[8];
      u32 have = 0;
      int levels = 63 - __builtin_clzll((u64)(all / step)),
          children = levels <= 3 || levels % 3 == 0 ? 8 : 1 << levels % 3;
      i64 i = j;
      for (int k = 0; k < children && i < end; k++, i += step) {
        typename G::acc* to = acc + k * pitch;
        rows[k] = (char*)to;
        if (levels > 3) {
          descend<J, G>(to, low, n, all, i, step * children, w, base);
        } else {
          const i64 length = tree::length(i, n, all);
          if (length == 0) continue;
          char* p[1][operands];
          locate(low + i, base, p[0]);
          if (tree::packed && length == 1) {
            rows[k] = p[0][0];
          } else if (length == 1 && k >= 4) {  // it joins its partner at once
            tree::fold_rows(map, f, to - 4 * pitch, w, false, 1, p, s, 0);
            continue;
          } else {
            fold_lane<J, G>(to, low + i, length, w, base);
          }
        }
        have |= 1u << k;
      }
      tree::join_rows(f, acc, pitch, w, have, rows, levels > 3 ? 0 : down[0]);
    }
    // `count` elements from i on, L apart, from left to right.
    template <int J, class G>
    KM_DRIVER void fold_lane(typename G::acc* to, i64 i, i64 count, i64 w,
                             char* const* base) const {
      typedef typename state<J, G>::tree tree;
      for (i64 done = 0, m; done < count; done += m) {
        char* p[tree::rounds][operands];
        m = smaller(tree::rounds, count - done);
        for (i64 k = 0; k < m; k++) locate(i + (done + k) * tree::L, base, p[k]);
        tree::fold_rows(map, fold<J, G>(), to, w, done == 0, m, p, s, down[0]);
      }
    }
    // One chunk of `w` columns of one fold, in the memory of all.
    template <int J, class G>
    KM_INL void fold_deep(char* trees, i64 row, i64 chunk, i64 column, i64 n, i64 w,
                          char* const* p) const {
      typedef typename state<J, G>::tree tree;
      typename G::acc* acc = (typename G::acc*)trees;
      descend<J, G>(acc, chunk * chunk_elements, n, tree::all_lanes(n), 0, 1, w, p);
      keep<J, G>(acc, row, chunk, column, w, p[inputs + J]);
    }
    // The lanes of one fold, after its rounds.
    template <int J, class G>
    KM_INL void fold_beside(char* trees, i64 row, i64 chunk, i64 column, i64 n, i64 w, bool direct,
                            char* const* p) const {
      typedef typename state<J, G>::tree tree;
      constexpr i64 L = tree::L;
      typename G::acc* lanes = acc<J, G>(trees);
      if constexpr (tree::packed) {
        char* from = direct ? p[0] + chunk * chunk_elements * down[0] : (char*)lanes;
        tree::join_beside(fold<J, G>(), lanes, from, direct ? n : smaller(n, L), w,
                          direct ? n * down[0] : 0);
      } else {
        tree::close(fold<J, G>(), lanes, n, w);
      }
      keep<J, G>(lanes, row, chunk, column, w, p[inputs + J]);
    }
    KM_INL void fold_block(char* trees, i64 row, i64 chunk, i64 column, i64 n, i64 w,
                           char* const* p) const {
      // Accumulators lie elsewhere in a page, hence in a cache, than the elements.
      trees += (p[0] + page_bytes / 2 - trees) & (page_bytes - 64);
      if (deep) return (fold_deep<K, F>(trees, row, chunk, column, n, w, p), ...);
      const bool direct = (state<K, F>::tree::packed && ...) && n <= 2 * fewest_lanes &&
                          last == kept && adjoin(w);
      constexpr i64 piece = outputs == 1 ? chunk_elements : 512;  // several folds read it again
      if (!direct)
        for (i64 q = 0; q < n; q += piece)
          (fold_rounds<K, F>(acc<K, F>(trees), chunk * chunk_elements, q, smaller(piece, n - q), w,
                             p),
           ...);
      (fold_beside<K, F>(trees, row, chunk, column, n, w, direct, p), ...);
    }

    // Sequences that follow each other along the last kept dimension, a few at once.
    template <int J, class G>
    KM_INL void keep_rows(const typename G::acc* results, i64 row, i64 chunk, i64 count,
                          char* const* p, const i64* step) const {
      if (chunks == 1)
        store_results(fold<J, G>(), results, count, p[inputs + J], step[inputs + J]);
      else
        for (i64 i = 0; i < count; i++)
          *(beside ? part<J, G>(row + i, chunk) : part<J, G>(row, chunk + i)) = results[i];
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
      bank::each_whole(fold<K, F>()..., (typename F::acc*)results[K]..., count, n, p[0], step[0]);
      (keep_rows<K, F>((const typename F::acc*)results[K], row, chunk, count, p, step), ...);
    }
    // How many chunks from this one on have as many elements: those that are whole.
    KM_INL i64 whole_chunks(i64 chunk) const {
      return larger(elements / chunk_elements - chunk, i64(1));
    }
    KM_INL void each_row(i64 begin, i64 stop) const {
      alignas(64) char trees[beside ? memory : 1];
      // Several sequences at once, or several whole chunks of one.
      const bool along = !beside && chunks > 1;
      i64 extent = along ? 1 : beside_each(), count;
      i64 most = beside ? widest
                 : outputs == 1 || packed()
                     ? rows_at_once  // several folds read the rows again
                     : clamp(piece_elements / (elements + 48), 1, rows_at_once);
      i64 step[operands];
      for (int k = 0; k < operands; k++)
        step[k] = along ? chunk_elements * s[k] : kept ? call->operands[k].strides[kept - 1] : 0;
      for (i64 unit = begin; unit < stop; unit += count) {
        i64 c = unit / extent % chunks, row = unit / (extent * chunks) * extent + unit % extent,
            low = c * chunk_elements, n = smaller(chunk_elements, elements - low);
        count = smaller(smaller(most, stop - unit),
                        along ? whole_chunks(c) : extent - row % extent);
        char* p[operands];
        for (int k = 0; k < operands; k++)
          p[k] = call->operands[k].data + (k < inputs && !beside ? low * s[k] : 0);
        seek<operands>(call, 0, kept, row, p);
        if constexpr (beside) {
          each_run(trees, low, n, count, p, step);
          (join_runs<K, F>(trees, row, c, count, n, p, step), ...);
        } else if constexpr (packed()) {
          fold_packed(row, c, count, n, p, step);
        } else {
          (fold_rows<K, F>(row, c, count, n, p, step), ...);
        }
      }
    }
    // Elements low ... low + n - 1 of `count` sequences, `step` apart, run by run.
    KM_DRIVER void each_run(char* trees, i64 low, i64 n, i64 count, char* const* base,
                            const i64* step) const {
      for (i64 i = 0, m; i < n; i += m) {
        char* p[operands];
        m = smaller(locate(low + i, base, p), n - i);
        const i64 next = call->operands[0].strides[last - 1];
        (state<K, F>::tree::fold_run(map, fold<K, F>(), acc<K, F>(trees), i, m, count, p, s, step,
                                     i + m < n ? next : 0),
         ...);
      }
    }
    template <int J, class G>
    KM_INL void join_runs(char* trees, i64 row, i64 chunk, i64 count, i64 n, char* const* p,
                          const i64* step) const {
      typename G::acc results[rows_at_once];
      state<J, G>::tree::join_sequences(map, fold<J, G>(), results, acc<J, G>(trees), count, n);
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
        if constexpr (blocks_of_columns) {
          fold_block(trees, row, c, column, n, w, p);
        } else {
          chunk(trees, low, low + n, w, p);
          (close<K, F>(trees, row, c, column, n, w, p[inputs + K]), ...);
        }
      }
    }
    KM_DRIVER void operator()(i64 begin, i64 end) const {
      i64 stop = smaller(end * group, units());
      if constexpr (whole_rows || beside)
        each_row(begin * group, stop);
      else
        each_unit(begin * group, stop);
    }
    // The tree over the chunks of each result.
    KM_DRIVER void finish() const {
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
