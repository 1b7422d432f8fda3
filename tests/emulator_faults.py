"""The kernels of corpus/faults.cu as cases: how each is launched and what the report must say."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from emulator_kernels import CORPUS, aligned

if TYPE_CHECKING:
    from collections.abc import Callable

TEXT = (CORPUS / "faults.cu").read_text()


@dataclass(frozen=True, slots=True)
class Fault:
    """`array` and `index` are compared where they are given; `{}` of them does not matter."""

    name: str
    kind: str
    args: Callable[[], list[Any]]
    grid: int | tuple[int, ...] = 1
    block: int | tuple[int, ...] = 64
    shared: int = 0
    cooperative: bool = False
    array: str | None = None
    index: Any = None

    @property
    def lines(self) -> set[int]:
        """The lines that are marked with its name."""
        mark = re.compile(rf"//@{self.name}\b")
        return {n for n, line in enumerate(TEXT.splitlines(), 1) if mark.search(line)}


def f32(*shape: int) -> np.ndarray:
    return aligned(np.zeros(shape, np.float32))


def i32(*shape: int) -> np.ndarray:
    return aligned(np.zeros(shape, np.int32))


OUT, UNINIT, MISALIGNED = "out of bounds", "uninitialised read", "misaligned access"
FAULTS = [
    Fault("past_the_end", OUT, lambda: [f32(128)], 2, array="x", index=128),
    Fault("before_the_start", OUT, lambda: [f32(64), f32(64)], array="x", index=-1),
    Fault("wrong_stride", OUT, lambda: [i32(8, 16), 16], 1, (16, 8), array="grid"),
    Fault("far_away", OUT, lambda: [i32(64)], array="x"),
    Fault("shared_index", OUT, lambda: [f32(64)], index=64),
    Fault("shared_column", OUT, lambda: [f32(64)], index=9),
    Fault("shared_pointer", OUT, lambda: [f32(64)]),
    Fault("dynamic_shared", OUT, lambda: [f32(64)], shared=252, index=63),
    Fault("device_array", OUT, lambda: [3]),
    Fault("half_filled", UNINIT, lambda: [f32(64)], array="s"),
    Fault("never_cleared", UNINIT, lambda: [i32(4)], shared=16),
    Fault("missing_halo", UNINIT, lambda: [f32(64), f32(64)], array="s"),
    Fault("member_left_out", UNINIT, lambda: [aligned(np.zeros(1024, np.uint8))], array="s"),
    Fault("vector_load", MISALIGNED, lambda: [f32(256), f32(64)], array="x"),
    Fault("wide_load", MISALIGNED, lambda: [aligned(np.zeros(1024, np.uint8)),
                                            aligned(np.zeros(64, np.uint64))], array="x"),
    Fault("shared_vector", MISALIGNED, lambda: [f32(64)], 1, 32, array="s"),
    Fault("between_two", MISALIGNED, lambda: [aligned(np.zeros(130)), aligned(np.zeros(64))], array="x"),
    Fault("half_a_struct", MISALIGNED, lambda: [f32(128), f32(128)], 1, 32, array="s"),
    Fault("no_barrier", "race", lambda: [f32(64)], array="s"),
    Fault("missing_in_loop", "race", lambda: [f32(64)], 1, 128, array="s"),
    Fault("second_barrier", "race", lambda: [i32(8), i32(64), 8], array="s", index=0),
    Fault("no_syncwarp", "race", lambda: [i32(32)], 1, 32, array="s"),
    Fault("between_blocks", "race", lambda: [i32(1)], 4, 32, array="sum", index=0),
    Fault("with_atomics", "race", lambda: [i32(1)], 1, 32, array="y", index=0),
    Fault("no_fence", "race", lambda: [i32(1)], 2, 32, array="box", index=0),
    Fault("bytes", "race", lambda: [np.zeros(32, np.uint8)], array="x"),
    Fault("two_barriers", "barrier divergence", lambda: [f32(64)]),
    Fault("in_a_branch", "barrier divergence", lambda: [f32(64)]),
    Fault("uneven_loop", "barrier divergence", lambda: [i32(64)]),
    Fault("barrier_and_warp", "barrier divergence", lambda: [i32(32)], 1, 32),
    Fault("not_in_mask", "misuse", lambda: [np.zeros(32, np.uint32)], 1, 32),
    Fault("different_masks", "mask mismatch", lambda: [i32(32)], 1, 32),
    Fault("lane_takes_no_part", "mask mismatch", lambda: [i32(32)], 1, 32),
    Fault("half_a_warp_down", "mask mismatch", lambda: [i32(32)], 1, 32),
    Fault("other_operation", "misuse", lambda: [np.zeros(32, np.uint32)], 1, 32),
    Fault("waits_for_nobody", "infinite spin", lambda: [i32(1)], 1, 32),
    Fault("volatile_wait", "infinite spin", lambda: [i32(1)], 1, 32),
    Fault("lock_in_warp", "infinite spin", lambda: [i32(1)], 1, 32),
    Fault("dead_mbarrier", "deadlock", lambda: [i32(64)]),
    Fault("bytes_that_never_come", "deadlock", lambda: [i32(64)]),
    Fault("each_waits_for_the_other", "deadlock", lambda: [i32(32)], 1, 32),
    Fault("some_blocks", "barrier divergence", lambda: [i32(1)], 3, 64, cooperative=True),
    Fault("trapped", "trap", lambda: [9], 1, 32),
    Fault("asserted", "assertion", lambda: [i32(32) - np.int32(1)], 1, 32),
    Fault("crash", "crash", lambda: [i32(4)], 1, 32),
]  # fmt: skip
BY_NAME = {fault.name: fault for fault in FAULTS}
