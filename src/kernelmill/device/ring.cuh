// ring.cuh - the persistent kernel that families of one dimension share on sm_90 to sm_110: one block a multiprocessor, whose
// warps have roles and meet at copy barriers only, over a ring of stages in dynamic shared memory.  What is computed of a tile
// is the family's; what tiles tell each other is in lookback.cuh.
//
//   loader     takes tickets for tiles, and has the copy engine bring each into the next free stage
//   reducers   make the total of each worker's part of a tile, and publish the total of the tile: several tiles ahead of
//   look-back  one warp, which combines the tiles before
//   workers    read their part of a stage into registers, wait for what is before it, and write results
//
// A family writes a struct, of which every thread makes one, and calls km::tile_ring<Work>::run(call, work, tiles):
//
//   struct Work {
//     typedef ... value, Op, held;                   // of a total; its operator (`op`); what a worker keeps of its part
//     static constexpr int workers, reducers;        // warps; reducers divide workers
//     static constexpr int stages, stage_bytes;      // of the ring; a multiple of 128
//     Op op;
//     static constexpr bool seeded;                  // whether `seed` stands before the first tile, on the left of all
//     value seed;
//     // The loader, its lane 0: announces bytes at `full` and starts copies, or copies itself and arrives; exactly one arrival.
//     void fetch(char* stage, i64 tile, u64* full) const;
//     // A reducer, whole: the total of a worker's part, in lane 0.  Only asked for parts that `is_whole` says are whole.
//     value total(const char* stage, i64 tile, int worker) const;
//     bool is_whole(i64 tile, int worker) const;
//     static constexpr bool takes_sums;              // optional: `take` waits until the reducers have read the tile
//     // A worker, whole.  `give` may use the worker's part of the stage, and returns when it has been read; where `lags` is
//     // set, it only starts copies out of it (bulk_store), and the ring waits for them while the next tile is worked on.
//     static constexpr bool lags;                    // may be left out
//     held take(const char* stage, i64 tile, int worker) const;
//     void give(held&, char* stage, i64 tile, int worker, bool any, const value& before) const;
//   };
//
// The record of the call has `parts` and `tickets` (two counters, 0 before a launch and after it), and is launched with
// tile_ring<Work>::threads threads, stages * stage_bytes bytes of dynamic shared memory, and at most one block a multiprocessor.
// No tile waits for a later one, so any number of blocks may be resident.
#pragma once
#include "lookback.cuh"

namespace km {

template <class Work>
struct tile_ring {
  typedef typename Work::value value;
  typedef lookback<value, typename Work::Op> look;
  static constexpr int workers = Work::workers, reducers = Work::reducers, stages = Work::stages;
  static constexpr int each = workers / reducers, threads = (workers + reducers + 2) * warp_size;
  static_assert(workers % reducers == 0, "reducers divide workers");
  static_assert(Work::stage_bytes % 128 == 0, "stages are aligned for the copy engine");

  template <class T, int N>
  struct room {
    __align__(16) char bytes[N * sizeof(T)];
    KM_INL T& operator[](int i) { return ((T*)bytes)[i]; }
  };
  // What the roles hand over; of each stage unless said otherwise.
  struct shared {
    u64 full[stages], summed[stages], known[stages], empty[stages];
    i64 tile[stages];  // -1 behind the last one
    u32 tag;
    room<value, 2 * workers> totals;            // of parts, of two tiles
    room<value, stages * workers> inside;       // what is before a part in its tile
    room<value, stages> before;                 // what is before the tile
  };
  // Where a role is in the ring.
  struct place {
    int stage = 0;
    u32 phase = 0;
    KM_INL void next() {
      if (++stage == stages) stage = 0, phase ^= 1;
    }
  };

  // A loader has one ticket in hand, which is under way while a tile is fetched: with more, tiles that others wait for lie
  // about, and everything takes a tenth longer.
  struct first_ticket {
    i64 tile;
    u32 tag;
  };
  template <class Call>
  static KM_INL i64 ticket(const Call& c) {
    return (i64)atomic_add<relaxed>((u64*)c.tickets, (u64)1);
  }

  template <class Call>
  static KM_INL void load(const Call& c, shared& s, char* memory, const Work& work, i64 tiles, first_ticket taken) {
    if (lane_id() != 0) return;
    s.tag = taken.tag;
    i64 tile = taken.tile;
    for (place at;; at.next()) {
      copy_barrier_wait(s.empty + at.stage, at.phase ^ 1);  // at once in the first round
      s.tile[at.stage] = tile < tiles ? tile : -1;
      if (tile >= tiles) {
        copy_barrier_arrive(s.full + at.stage);
        break;
      }
      work.fetch(memory + at.stage * Work::stage_bytes, tile, s.full + at.stage);
      tile = ticket(c);
    }
    // The last block to take its last ticket leaves all as it was, but for the number of the launch.
    u64* tickets = (u64*)c.tickets;
    if (atomic_add<acquire_release>(tickets + 1, (u64)1) + 1 == (u64)gridDim.x) {
      launch_over(c.parts, taken.tag);
      atomic_store<relaxed>(tickets, (u64)0);
      atomic_store<relaxed>(tickets + 1, (u64)0);
    }
  }

  static KM_INL void reduce(char* table, shared& s, const char* memory, const Work& work, int number) {
    int turn = 0;
    for (place at;; at.next(), turn ^= 1) {
      copy_barrier_wait(s.full + at.stage, at.phase);
      const i64 tile = s.tile[at.stage];
      if (tile < 0) {
        if (number == 0 && lane_id() == 0) copy_barrier_arrive(s.summed + at.stage);
        return;
      }
      KM_UNROLL_ALL for (int k = 0; k < each; k++) {
        const int part = number * each + k;
        if (work.is_whole(tile, part)) {
          const value total = work.total(memory + at.stage * Work::stage_bytes, tile, part);
          if (lane_id() == 0) s.totals[turn * workers + part] = total;
        }
      }
      part_barrier(1, reducers * warp_size);
      if (number == 0 && lane_id() == 0) join(table, s, work, at.stage, tile, turn);
    }
  }
  // From left to right; the parts behind the first one that is not whole are nobody's business: it is the last tile.
  static KM_INL void join(char* table, shared& s, const Work& work, int stage, i64 tile, int turn) {
    if (work.is_whole(tile, 0)) {
      value sum = s.totals[turn * workers];
      bool whole = true;
      KM_UNROLL_ALL for (int part = 1; part < workers; part++) {
        if (whole) {
          s.inside[stage * workers + part] = sum;
          whole = work.is_whole(tile, part);
          if (whole) sum = work.op(sum, s.totals[turn * workers + part]);
        }
      }
      if (whole) look::publish(table, tile, s.tag, sum);
    }
    copy_barrier_arrive(s.summed + stage);
  }

  static KM_INL void look_back(const char* table, shared& s, const Work& work) {
    look past;
    for (place at;; at.next()) {
      copy_barrier_wait(s.summed + at.stage, at.phase);
      const i64 tile = s.tile[at.stage];
      if (tile >= 0) {
        value before;
        if (tile > 0) before = past.prefix(table, s.tag, tile, work.op);
        if constexpr (Work::seeded) before = tile > 0 ? work.op(work.seed, before) : work.seed;
        if ((tile > 0 || Work::seeded) && lane_id() == 0) s.before[at.stage] = before;
        warp_barrier();
      }
      if (lane_id() == 0) copy_barrier_arrive(s.known + at.stage);
      if (tile < 0) return;
      warp_barrier();
    }
  }

  template <class W> static KM_INL constexpr bool sums_first(decltype(W::takes_sums)*) { return W::takes_sums; }
  template <class W> static KM_INL constexpr bool sums_first(...) { return false; }
  template <class W> static KM_INL constexpr bool lags(decltype(W::lags)*) { return W::lags; }
  template <class W> static KM_INL constexpr bool lags(...) { return false; }

  static KM_INL void serve(shared& s, char* memory, const Work& work, int number) {
    [[maybe_unused]] int last = -1;  // the stage that copies are still under way from
    for (place at;; at.next()) {
      copy_barrier_wait(s.full + at.stage, at.phase);
      const i64 tile = s.tile[at.stage];
      if (tile < 0) break;
      char* stage = memory + at.stage * Work::stage_bytes;
      if constexpr (sums_first<Work>(nullptr)) copy_barrier_wait(s.summed + at.stage, at.phase);
      typename Work::held held = work.take(stage, tile, number);
      copy_barrier_wait(s.known + at.stage, at.phase);
      bool any = tile > 0 || Work::seeded;
      value before;
      if (any) before = s.before[at.stage];
      if (number > 0 && work.is_whole(tile, number - 1)) {
        const value inside = s.inside[at.stage * workers + number];
        before = any ? work.op(before, inside) : inside;
        any = true;
      }
      work.give(held, stage, tile, number, any, before);
      if constexpr (lags<Work>(nullptr)) {
        if (lane_id() == 0) {
          bulk_stores_before_read();
          if (last >= 0) copy_barrier_arrive(s.empty + last);
        }
        last = at.stage;
      } else {
        if (lane_id() == 0) copy_barrier_arrive(s.empty + at.stage);
      }
      warp_barrier();
    }
    if (lane_id() == 0) bulk_stores_done();
  }

  template <class Call>
  static KM_INL void run(const Call& c, const Work& work, i64 tiles) {
    extern __shared__ __align__(128) char stage_memory[];
    __shared__ shared s;
    char* memory = stage_memory;
    const int warp = (int)threadIdx.x / warp_size;
    first_ticket taken;
    if (warp == workers + reducers && lane_id() == 0) {  // under way while barriers are made
      taken.tile = ticket(c);
      taken.tag = launch_number(c.parts);
    }
    if (threadIdx.x == 0) {
      KM_UNROLL_ALL for (int k = 0; k < stages; k++) {
        copy_barrier_init(s.full + k, 1);
        copy_barrier_init(s.summed + k, 1);
        copy_barrier_init(s.known + k, 1);
        copy_barrier_init(s.empty + k, workers);
      }
      copy_barriers_made();
    }
    block_barrier();
    char* table = look::table(c.parts);
    if (warp < workers) serve(s, memory, work, warp);
    else if (warp < workers + reducers) reduce(table, s, memory, work, warp - workers);
    else if (warp == workers + reducers) load(c, s, memory, work, tiles, taken);
    else look_back(table, s, work);
  }
};

}  // namespace km
