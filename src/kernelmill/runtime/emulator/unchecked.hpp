// unchecked.hpp - the points at which the sanitizer looks on, all empty: the runtime without it.
#pragma once
#include "state.hpp"

namespace km_emu::checks {

inline void run(Block*, u32) {}
inline void start(Block*, u32) {}
inline void allocated(void*, usize, const char*) {}
inline void freed(void*) {}
inline void written(const void*, usize) {}
constexpr bool always_slow = false;

}  // namespace km_emu::checks
