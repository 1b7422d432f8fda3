"""Random typed programs on a device, in batches: one text of several kernels, compiled at once.

The back end then launches each kernel as if it had built it alone.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import oracle
import strategies
from kernelmill.algorithms.source import transform_source
from kernelmill.compiler.captured import pack_format
from kernelmill.dtypes import storage
from kernelmill.runtime.backend import Kernel, KernelSource, Launch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kernelmill.runtime.backend import Backend
    from strategies import Case

PROGRAMS = int(os.environ.get("KERNELMILL_FUZZ_PROGRAMS", "1000"))
BATCH = 20
# Some threads of a tile, and none in the next.
ELEMENTS = 12
_ALIGNMENT = 16


def sources_of(cases: Sequence[Case]) -> list[KernelSource]:
    """Return the text of each case, as if it was alone; distinct, so that it names its kernel."""
    return [
        transform_source(
            f"fuzz {i}",
            case.program,
            [(t, "contiguous") for _, t in case.program.entry.params],
            [(case.program.entry.result, "contiguous")],
            "flat",
        )
        for i, case in enumerate(cases)
    ]


def together(sources: Sequence[KernelSource]) -> str:
    """Return one text of several kernels, each under names of its own."""
    parts = []
    for i, made in enumerate(sources):
        text = made.text.replace("km_kernel", f"kernel{i}").replace("Captures", f"Captures{i}")
        parts.append(re.sub(r"\b(Op|Run)\b", rf"\g<1>{i}", text))
    return "\n".join(parts)


def run(
    backend: Backend, loaded: Any, source: KernelSource, case: Case, views: Callable[..., Any]
) -> list[Any]:
    """Launch one kernel of a batch; `views` gives arrays to the device and fetches the result."""
    out = np.zeros(ELEMENTS, strategies.numpy_dtype(case.program.entry.result))
    backend._loaded[source.text] = loaded
    held, fetch = views([*case.arguments, out])
    launch = Launch(
        shape=(ELEMENTS,),
        pointers=tuple(v.ptr for v in held),
        strides=tuple(v.strides for v in held),
        captures=_packed(case),
        workspace=0,
        threads=1,
        flags=0,
        release_gil=False,
        views=tuple(held),
    )
    backend.launch(Kernel(source, getattr(loaded, "entry", 0)), launch)
    del backend._loaded[source.text]
    return list(fetch())


def _packed(case: Case) -> bytes:
    types = [storage(t) for _, t in case.program.captures]
    values = [oracle.stored(v, t) for v, t in zip(case.captures, types, strict=True)]
    block = pack_format(types).pack(*(v.item() for v in values))
    return block + bytes(-len(block) % _ALIGNMENT)


def compare(case: Case, found: Sequence[Any], text: str) -> None:
    """Raise where a result differs from the interpreter's by a bit."""
    for element, mine in enumerate(found):
        inputs = [x[element] for x in case.arguments]
        right = oracle.run(case.program, inputs, case.captures)
        assert oracle.same_bits(mine, right), (
            f"element {element}, inputs {inputs}, captures {case.captures}: found {mine!r}, "
            f"interpreted {right!r}\n{text}"
        )


def batches(programs: int, *, arrays: bool = False) -> Callable[[Any], Any]:
    """Return a decorator that draws so many programs, a batch of cases for each call."""

    def decorate(test: Any) -> Any:
        cases = strategies.cases(ELEMENTS, arrays=arrays)
        drawn = given(st.lists(cases, min_size=BATCH, max_size=BATCH))(test)
        return settings(
            max_examples=max(1, programs // BATCH),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
            print_blob=True,
        )(drawn)

    return decorate
