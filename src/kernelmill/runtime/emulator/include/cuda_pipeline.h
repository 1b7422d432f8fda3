// The emulator's form of this header: copies of single threads, in groups.
#pragma once
#include "emulator/device.hpp"

KM_EMU_INLINE void __pipeline_memcpy_async(void* to, const void* from, size_t bytes, size_t zeros = 0) {
  km_emu_small_copy(to, from, (km_emu::u32)(bytes - zeros), (km_emu::u32)zeros);
}
KM_EMU_INLINE void __pipeline_commit() { km_emu_copies_commit(2); }
KM_EMU_INLINE void __pipeline_wait_prior(size_t pending) { km_emu_copies_wait(2, (km_emu::u32)pending); }
