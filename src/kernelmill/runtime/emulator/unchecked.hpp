// unchecked.hpp - the points at which the sanitizer looks on, all empty: the runtime without it.
#pragma once
#include "state.hpp"

namespace km_emu::checks {

constexpr bool looks_on = false;

inline void run(Block*, u32) {}
inline void arrived(Block*, u32, int) {}
inline void released(Block*, int, u32, u32) {}
inline void diverged(Block*, const Barrier&, const void*) {}
inline void combined(Block*, u32, const Group&, u32, bool) {}
inline void grid_opened(Block* const*, i64) {}
inline void transaction_begins(u64*, const void*) {}
inline void transaction_used(u64*, const void*, bool) {}
inline void mbarriers_fenced() {}
inline void transaction_arrives(u64*) {}
inline void transaction_turns(u64*) {}
inline void transaction_seen(u64*) {}
inline void copied(void*, const void*, u32, u64*, const void*) {}
inline void copied_small(void*, const void*, u32, u32, const void*) {}
inline void copies_committed(int) {}
inline void copies_awaited(int, u32) {}
inline void proxies_fenced(bool) {}
inline void loaded_both(const void*, const void*) {}
inline void stored_both(void*, const void*) {}
inline void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void report_failure(i32, const void*, const char*) {}
inline void report_standstill(Block*, const char*, const void*, const char*) {}
inline bool is_endless() { return false; }
inline void polled(const void*) {}
inline void allocated(void*, usize, const char*) {}
inline void freed(void*) {}
inline void written(const void*, usize) {}
inline void begin_launch(Launch*, const Body*) {}
inline void begin_block(Block*, char*, usize) {}
inline void drop_block(Block*) {}

}  // namespace km_emu::checks
