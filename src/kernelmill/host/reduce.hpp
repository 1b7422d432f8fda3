// reduce.hpp - one pass over the inputs, one or several folds, any axes: which elements make a chunk, tasks, results.
// The order inside a chunk is in reduce_tree.hpp, the well-known folds are in fold.hpp.
//
//   km::reduce<km::form, Map, km::in<km::arg<T, pattern>...>, km::folds<F...>>::run(call, map, F...);
//
// Map turns the inputs of one index into the accumulator value of each fold (one value or a km::tupleN); it derives from
// km::mapped, or is km::same<T>.  Dimensions of the call, outermost first: kept ones (flags bits 8-15 say how many), then
// reduced ones in the order of the tree, at least one; km::columns has one more kept dimension at the end.  An operand is one
// input, or the output of one fold (stride 0 along reduced dimensions).  No extent is 0.
//
// Workspace: with m reduced elements a result and c = ceil(m / 16384) > 1, the sum over the folds of
// round_up_64(results * c * sizeof(acc)) bytes, aligned to 64; otherwise none.
#pragma once
#include "reduce_tree.hpp"

namespace km {

enum Form : int {
  rows,     // the innermost dimension is the only reduced one
  runs,     // several reduced dimensions, the innermost one last
  columns,  // the innermost dimension is kept: many columns at once
};
template <class... F> struct folds {};

constexpr i64 kept_shift = 8, task_elements_reduced = 32768, piece_elements = 4096;
constexpr i64 tree_bytes = 32768;  // accumulators of one fold over a block of columns
KM_INL i64 round_up_64(i64 bytes) { return (bytes + 63) & ~i64(63); }

// One fold's tree and where its results go.
template <int Form, class Map, int K, int N, class F, class... I>
struct fold_state {
  typedef typename F::acc A;
  typedef tree_of<F::ordered, Map, K, N, F, I...> tree;
  static constexpr i64 max_width = Form == columns ? (tree_bytes / (tree::slots * (i64)sizeof(A)) > 8
                                                          ? tree_bytes / (tree::slots * (i64)sizeof(A)) : 8)
                                                   : 1;
  alignas(64) char bytes[tree::slots * max_width * (i64)sizeof(A)];
  KM_INL A* acc() { return (A*)bytes; }
};

template <class F>
KM_HOT void store_results(const F& fold, const typename F::acc* acc, i64 n, char* to, i64 stride) {
  const F f = fold;
  for (i64 j = 0; j < n; j++) element<typename F::out>::store(to + j * stride, f.finish(acc[j]));
}

// Adjacent pairs over `count` rows of `width` accumulators; the result is in row 0.
template <class F>
KM_HOT void join_chunks(const F& fold, typename F::acc* acc, i64 count, i64 width) {
  const F f = fold;
  for (i64 step = 1; step < count; step *= 2)
    for (i64 i = 0; i + step < count; i += 2 * step) {
      typename F::acc *a = acc + i * width, *b = acc + (i + step) * width;
      KM_IVDEP
      for (i64 j = 0; j < width; j++) a[j] = f(a[j], b[j]);
    }
}

template <int K, class F> struct fold_slot { const F& fold; };

template <int Form, class Map, class In, class Folds, class Numbers> struct reduction;
template <int Form, class Map, class... I, class... F, int... K>
struct reduction<Form, Map, in<I...>, folds<F...>, indices<K...>> {
  static constexpr int inputs = (int)sizeof...(I), outputs = (int)sizeof...(F), operands = inputs + outputs;
  template <int J, class G> using state = fold_state<Form, Map, J, outputs, G, I...>;

  struct Trees : state<K, F>... {};

  struct Job : fold_slot<K, F>... {
    const Call* call;
    const Map& map;
    int kept, last;  // reduced dimensions are [kept, last], the last one is the fastest
    i64 elements, rows_kept, columns_kept, width, blocks, chunks, group;
    i64 s[operands], down[operands];  // from column to column, from element to element
    bool dense;
    char* parts[outputs];

    KM_COLD Job(const Call* c, const Map& m, const F&... f) : fold_slot<K, F>{f}..., call(c), map(m) {
      kept = (int)(c->flags >> kept_shift & 255);
      last = c->ndim - (Form == columns ? 2 : 1);
      elements = extent_of(c, kept, last + 1);
      rows_kept = extent_of(c, 0, kept);
      columns_kept = Form == columns ? c->shape[last + 1] : 1;
      chunks = ceil_div(elements, chunk_elements);
      width = 1;
      if (Form == columns) {  // narrower blocks when there would be too few of them for the threads
        width = columns_kept;
        ((width = smaller(width, state<K, F>::max_width)), ...);
        i64 share = ceil_div(columns_kept, 2 * c->threads);
        if (rows_kept * chunks < 2 * c->threads) width = smaller(width, larger(i64(16), (share + 15) & ~i64(15)));
      }
      blocks = ceil_div(columns_kept, width);
      dense = true;
      for (int k = 0; k < operands; k++) {
        down[k] = c->operands[k].strides[last];
        s[k] = c->operands[k].strides[c->ndim - 1];
        if (k < inputs && Form == columns) dense = dense && down[k] == width * s[k];
      }
      group = larger(i64(1), task_elements_reduced / (smaller(elements, chunk_elements) * width));
      char* next = (char*)c->workspace;
      const i64 size[] = {(i64)sizeof(typename F::acc)...};
      for (int k = 0; k < outputs; k++) {
        parts[k] = next;
        next += round_up_64(rows_kept * columns_kept * chunks * size[k]);
      }
    }
    KM_INL i64 units() const { return rows_kept * blocks * chunks; }
    template <int J, class G> KM_INL const G& fold() const { return fold_slot<J, G>::fold; }
    template <int J, class G> KM_INL typename G::acc* part(i64 row, i64 chunk) const {
      return (typename G::acc*)parts[J] + (row * chunks + chunk) * columns_kept;
    }

    // Elements q ... q + n - 1 of a chunk, adjacent along the innermost reduced dimension, into every fold.
    KM_INL void feed(Trees& trees, i64 q, i64 n, i64 w, char** p) const {
      i64 piece = larger(i64(1), piece_elements / w);
      for (i64 done = 0; done < n; done += piece) {
        i64 m = smaller(piece, n - done);
        (state<K, F>::tree::feed(map, fold<K, F>(), static_cast<state<K, F>&>(trees).acc(), q + done, m, w, dense, p, s, down),
         ...);
        for (int k = 0; k < inputs; k++) p[k] += m * down[k];
      }
    }
    KM_INL void chunk(Trees& trees, i64 low, i64 high, i64 w, char* const* base) const {
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
    template <int J, class G>
    KM_INL void keep(Trees& trees, i64 row, i64 chunk, i64 column, i64 n, i64 w, char* to) const {
      typedef state<J, G> S;
      typename G::acc* acc = static_cast<S&>(trees).acc();
      S::tree::close(fold<J, G>(), acc, n, w);
      if (chunks == 1) store_results(fold<J, G>(), acc, w, to, s[inputs + J]);
      else __builtin_memcpy((void*)(part<J, G>(row, chunk) + column), (const void*)acc, (usize)w * sizeof(typename G::acc));
    }
    KM_COLD void operator()(i64 begin, i64 end) const {
      Trees trees;
      i64 stop = smaller(end * group, units());
      for (i64 unit = begin * group; unit < stop; unit++) {
        i64 c = unit % chunks, column = unit / chunks % blocks * width, row = unit / (chunks * blocks);
        i64 w = smaller(width, columns_kept - column), low = c * chunk_elements;
        i64 high = smaller(elements, low + chunk_elements);
        char* p[operands];
        for (int k = 0; k < operands; k++) p[k] = call->operands[k].data + (Form == columns ? column * s[k] : 0);
        seek<operands>(call, 0, kept, row, p);
        chunk(trees, low, high, w, p);
        (keep<K, F>(trees, row, c, column, high - low, w, p[inputs + K]), ...);
      }
    }
    // The tree over the chunks of each result.
    KM_COLD void finish() const {
      for (i64 row = 0; row < rows_kept; row++) {
        char* p[operands];
        for (int k = 0; k < operands; k++) p[k] = call->operands[k].data;
        seek<operands>(call, 0, kept, row, p);
        (join_chunks(fold<K, F>(), part<K, F>(row, 0), chunks, columns_kept), ...);
        (store_results(fold<K, F>(), part<K, F>(row, 0), columns_kept, p[inputs + K], s[inputs + K]), ...);
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
