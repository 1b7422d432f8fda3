// groups.hpp - the common part of cooperative groups: blocks, grids, tiles of a warp, and what they compute together.
#pragma once
#include "warp.hpp"

namespace cooperative_groups {

template <class T> struct plus { T operator()(const T& a, const T& b) const { return a + b; } };
template <class T> struct less { T operator()(const T& a, const T& b) const { return b < a ? b : a; } };
template <class T> struct greater { T operator()(const T& a, const T& b) const { return a < b ? b : a; } };
template <class T> struct bit_and { T operator()(const T& a, const T& b) const { return a & b; } };
template <class T> struct bit_or { T operator()(const T& a, const T& b) const { return a | b; } };
template <class T> struct bit_xor { T operator()(const T& a, const T& b) const { return a ^ b; } };

struct thread_block {
  static void sync() { __syncthreads(); }
  static unsigned thread_rank() { return KM_EMU_RANK; }
  static unsigned size() { return blockDim.x * blockDim.y * blockDim.z; }
  static unsigned num_threads() { return size(); }
  static dim3 group_index() { return blockIdx; }
  static dim3 thread_index() { return threadIdx; }
  static dim3 group_dim() { return blockDim; }
  static dim3 dim_threads() { return blockDim; }
};

struct grid_group {
  static void sync() { km_emu_grid_sync(); }
  static bool is_valid() { return true; }
  static unsigned long long num_blocks() { return (unsigned long long)gridDim.x * gridDim.y * gridDim.z; }
  static unsigned long long block_rank() {
    return blockIdx.x + (unsigned long long)gridDim.x * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
  }
  static unsigned long long thread_rank() { return block_rank() * thread_block::size() + KM_EMU_RANK; }
  static unsigned long long size() { return num_blocks() * thread_block::size(); }
  static unsigned long long num_threads() { return size(); }
  static dim3 group_dim() { return gridDim; }
  static dim3 dim_blocks() { return gridDim; }
  static dim3 block_index() { return blockIdx; }
};

// Moves a value of any size between the lanes of `mask`, eight bytes at a time.
template <class T, class F>
KM_EMU_INLINE T by_words(const T& value, F move) {
  constexpr int words = ((int)sizeof(T) + 7) / 8;
  unsigned long long word[words] = {};
  __builtin_memcpy(word, &value, sizeof(T));
  for (int i = 0; i < words; i++) word[i] = move(word[i]);
  T moved;
  __builtin_memcpy(&moved, word, sizeof(T));
  return moved;
}

// A group of lanes that is known by its mask and first lane; `size` neighbours, a power of two.
struct warp_part {
  unsigned lanes, count;
  unsigned thread_rank() const { return KM_EMU_RANK & (count - 1); }
  unsigned size() const { return count; }
  unsigned num_threads() const { return count; }
  unsigned meta_group_rank() const { return KM_EMU_RANK / count; }
  unsigned meta_group_size() const { return (thread_block::size() + count - 1) / count; }
  void sync() const { __syncwarp(lanes); }
  int width() const { return (int)count; }
  unsigned first() const { return (unsigned)KM_EMU_LANE & ~(count - 1); }
  template <class T> T shfl(const T& v, int from) const {
    return by_words(v, [&](unsigned long long w) { return __shfl_sync(lanes, w, from, width()); });
  }
  template <class T> T shfl_up(const T& v, unsigned by) const {
    return by_words(v, [&](unsigned long long w) { return __shfl_up_sync(lanes, w, by, width()); });
  }
  template <class T> T shfl_down(const T& v, unsigned by) const {
    return by_words(v, [&](unsigned long long w) { return __shfl_down_sync(lanes, w, by, width()); });
  }
  template <class T> T shfl_xor(const T& v, int across) const {
    return by_words(v, [&](unsigned long long w) { return __shfl_xor_sync(lanes, w, across, width()); });
  }
  int any(int test) const { return __any_sync(lanes, test); }
  int all(int test) const { return __all_sync(lanes, test); }
  unsigned ballot(int test) const { return __ballot_sync(lanes, test) >> first(); }
  template <class T> unsigned match_any(T v) const { return __match_any_sync(lanes, v) >> first(); }
  template <class T> unsigned match_all(T v, int& all) const { return __match_all_sync(lanes, v, &all) >> first(); }
};

// Neighbours of several warps: they meet at a barrier of their own, and leave values for each other in shared memory.
template <unsigned N>
struct block_part {
  static constexpr int first_barrier = N == 64 ? 16 : N == 128 ? 32 : N == 256 ? 40 : N == 512 ? 44 : 46;
  static unsigned thread_rank() { return KM_EMU_RANK % N; }
  static unsigned meta_group_rank() { return KM_EMU_RANK / N; }
  static unsigned meta_group_size() { return (thread_block::size() + N - 1) / N; }
  static void sync() { km_emu_barrier(first_barrier + (int)meta_group_rank(), N, 0, 0); }
  template <class T> static T take(const T& value, unsigned rank) {
    struct alignas(T) Slot { char bytes[sizeof(T)]; };
    static thread_local Slot left_for_others[1024];
    Slot* mine = left_for_others + (KM_EMU_RANK - thread_rank());
    __builtin_memcpy(&mine[thread_rank()], &value, sizeof(T));
    sync();
    T taken;
    __builtin_memcpy(&taken, &mine[rank], sizeof(T));
    sync();
    return taken;
  }
  template <class T> static T shfl(const T& v, unsigned rank) { return take(v, rank % N); }
  template <class T> static T shfl_up(const T& v, unsigned by) {
    return take(v, thread_rank() >= by ? thread_rank() - by : thread_rank());
  }
  template <class T> static T shfl_down(const T& v, unsigned by) {
    return take(v, thread_rank() + by < N ? thread_rank() + by : thread_rank());
  }
  template <class T> static T shfl_xor(const T& v, unsigned across) { return take(v, (thread_rank() ^ across) % N); }
  static int any(int test) {
    int found = 0;
    for (unsigned by = 0; by < N; by++) found |= take(test != 0, by);
    return found;
  }
  static int all(int test) { return !any(!test); }
};
template <bool Wide, unsigned N> struct part_for { typedef warp_part type; };
template <unsigned N> struct part_for<true, N> { typedef block_part<N> type; };

template <unsigned N, class Parent = void>
struct thread_block_tile : part_for<(N > 32), N>::type {
  static_assert(N && N <= 1024 && !(N & (N - 1)), "a tile has 1, 2, 4, ... 1024 threads");
  static constexpr unsigned size() { return N; }
  static constexpr unsigned num_threads() { return N; }
};

// Any lanes of a warp, in their order.
struct coalesced_group {
  unsigned lanes;
  unsigned thread_rank() const { return (unsigned)__builtin_popcount(lanes & ((1u << KM_EMU_LANE) - 1)); }
  unsigned size() const { return (unsigned)__builtin_popcount(lanes); }
  unsigned num_threads() const { return size(); }
  unsigned meta_group_rank() const { return 0; }
  unsigned meta_group_size() const { return 1; }
  void sync() const { __syncwarp(lanes); }
  int lane_of(unsigned rank) const {
    unsigned left = lanes;
    for (; rank; rank--) left &= left - 1;
    return left ? __builtin_ctz(left) : KM_EMU_LANE;
  }
  template <class T> T from(const T& v, int lane) const {
    return by_words(v, [&](unsigned long long w) { return __shfl_sync(lanes, w, lane); });
  }
  template <class T> T shfl(const T& v, unsigned rank) const { return from(v, lane_of(rank)); }
  template <class T> T shfl_up(const T& v, unsigned by) const {
    return from(v, thread_rank() >= by ? lane_of(thread_rank() - by) : KM_EMU_LANE);
  }
  template <class T> T shfl_down(const T& v, unsigned by) const {
    return from(v, thread_rank() + by < size() ? lane_of(thread_rank() + by) : KM_EMU_LANE);
  }
  int any(int test) const { return __any_sync(lanes, test); }
  int all(int test) const { return __all_sync(lanes, test); }
  unsigned ballot(int test) const {
    const unsigned set = __ballot_sync(lanes, test);
    unsigned packed = 0, at = 0;
    for (unsigned left = lanes; left; left &= left - 1, at++) packed |= (set >> __builtin_ctz(left) & 1) << at;
    return packed;
  }
};

KM_EMU_INLINE thread_block this_thread_block() { return {}; }
template <unsigned Threads = 1024, unsigned Tiles = 0> struct block_tile_memory { char unused; };
template <unsigned Threads, unsigned Tiles> KM_EMU_INLINE thread_block this_thread_block(block_tile_memory<Threads, Tiles>&) {
  return {};
}
KM_EMU_INLINE grid_group this_grid() { return {}; }
KM_EMU_INLINE coalesced_group coalesced_threads() { return coalesced_group{__activemask()}; }
template <class G> KM_EMU_INLINE coalesced_group binary_partition(const G& group, bool test) {
  const unsigned set = __ballot_sync(group.lanes, test);
  return coalesced_group{test ? set : group.lanes & ~set};
}
template <class G, class T> KM_EMU_INLINE coalesced_group labeled_partition(const G& group, T label) {
  return coalesced_group{__match_any_sync(group.lanes, label)};
}
KM_EMU_INLINE warp_part part_of(unsigned count) {
  const unsigned all = count == 32 ? ~0u : (1u << count) - 1;
  return warp_part{all << ((unsigned)KM_EMU_LANE & ~(count - 1)), count};
}
template <unsigned N, class G> KM_EMU_INLINE thread_block_tile<N> tiled_partition(const G&) {
  if constexpr (N > 32) return thread_block_tile<N>{};
  else return thread_block_tile<N>{part_of(N)};
}

// Any of them, by value.
struct thread_group {
  enum Kind { block, part, some } kind;
  warp_part lanes;
  KM_EMU_INLINE thread_group(const thread_block&) : kind(block), lanes{0, 1} {}
  KM_EMU_INLINE thread_group(const warp_part& p) : kind(part), lanes(p) {}
  KM_EMU_INLINE thread_group(const coalesced_group& g) : kind(some), lanes{g.lanes, g.size()} {}
  void sync() const {
    if (kind == block) __syncthreads();
    else __syncwarp(lanes.lanes);
  }
  unsigned size() const { return kind == block ? thread_block::size() : lanes.count; }
  unsigned num_threads() const { return size(); }
  unsigned thread_rank() const {
    if (kind == some) return coalesced_group{lanes.lanes}.thread_rank();
    return kind == block ? KM_EMU_RANK : KM_EMU_RANK & (lanes.count - 1);
  }
};
template <class G> KM_EMU_INLINE thread_group tiled_partition(const G&, unsigned count) { return part_of(count); }

template <class G> KM_EMU_INLINE void sync(const G& group) { group.sync(); }
template <class G> KM_EMU_INLINE unsigned thread_rank(const G& group) { return group.thread_rank(); }
// One of them does it.
template <class G, class F, class... A> KM_EMU_INLINE void invoke_one(const G& group, F f, A... arguments) {
  if (group.thread_rank() == 0) f(arguments...);
}
template <class G, class F, class... A> KM_EMU_INLINE auto invoke_one_broadcast(const G& group, F f, A... arguments) {
  decltype(f(arguments...)) made{};
  if (group.thread_rank() == 0) made = f(arguments...);
  return group.shfl(made, 0);
}
template <class G> KM_EMU_INLINE unsigned group_size(const G& group) { return group.size(); }

// ---- what a tile computes -------------------------------------------------------------------------------------------

template <class G, class T, class Op>
KM_EMU_INLINE T inclusive_scan(const G& group, T value, Op op) {
  for (unsigned by = 1; by < group.size(); by *= 2) {
    const T other = group.shfl_up(value, by);
    if (group.thread_rank() >= by) value = op(other, value);
  }
  return value;
}
template <class G, class T>
KM_EMU_INLINE T inclusive_scan(const G& group, T value) {
  return inclusive_scan(group, value, plus<T>());
}
template <class G, class T, class Op>
KM_EMU_INLINE T exclusive_scan(const G& group, T value, Op op) {
  const T before = group.shfl_up(inclusive_scan(group, value, op), 1);
  return group.thread_rank() ? before : T();
}
template <class G, class T>
KM_EMU_INLINE T exclusive_scan(const G& group, T value) {
  return exclusive_scan(group, value, plus<T>());
}
template <class G, class T, class Op>
KM_EMU_INLINE T reduce(const G& group, T value, Op op) {
  return group.shfl(inclusive_scan(group, value, op), (int)group.size() - 1);
}

// Copies are made at once, by all threads of the group together.
template <class G, class T, class U>
KM_EMU_INLINE void memcpy_async(const G& group, T* to, const U* from, size_t bytes) {
  for (size_t at = group.thread_rank(); at < bytes; at += group.size()) ((char*)to)[at] = ((const char*)from)[at];
}
template <class G> KM_EMU_INLINE void wait(const G& group) { group.sync(); }
template <unsigned N, class G> KM_EMU_INLINE void wait_prior(const G& group) { group.sync(); }

namespace experimental {
using cooperative_groups::block_tile_memory;
using cooperative_groups::this_thread_block;
using cooperative_groups::tiled_partition;
}  // namespace experimental

}  // namespace cooperative_groups
