"""How much a result may depend on from run to run."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Determinism"]


class Determinism(IntEnum):
    """The levels of `cuda.compute`; each is one of `km.reduce`."""

    NOT_GUARANTEED = 0
    RUN_TO_RUN = 1
    GPU_TO_GPU = 2
