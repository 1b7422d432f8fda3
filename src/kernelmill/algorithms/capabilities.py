"""`capabilities()`: what is served, as data: algorithm family, element type, layout, back end.

Tests run every family on every type and layout that is listed here as supported. How a call is
carried out is in the family's own file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache as once
from itertools import product
from typing import TYPE_CHECKING, Final, get_args

from kernelmill.algorithms.layout import Pattern
from kernelmill.algorithms.refusals import REFUSALS, Refusal
from kernelmill.algorithms.sort_numbers import PARTITIONED
from kernelmill.dtypes import SCALARS
from kernelmill.errors import DeviceError
from kernelmill.runtime.backend import lacking
from kernelmill.runtime.devices import Device, backend_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = [
    "BACKENDS",
    "DTYPES",
    "FAMILIES",
    "HOLES",
    "ITERATORS",
    "LAYOUTS",
    "Capabilities",
    "Capability",
    "Hole",
    "absence",
    "capabilities",
    "hole",
]

# Functions of the table, and the family that back ends know them by; one stands for others that are
# alike: "scan" for inclusive ones, "search" for lower bounds. A new one is one more row here; the
# tests follow.
_FAMILY_OF: Final = {
    "transform": "transform",
    "for_each": "transform",
    "adjacent_difference": "transform",
    "reduce": "reduce",
    "transform_reduce": "reduce",
    "argmin": "reduce",
    "argmax": "reduce",
    "scan": "scan",
    "exclusive_scan": "scan",
    "scan_by_key": "scan",
    "reduce_by_key": "scan",
    "select": "select",
    "partition": "select",
    "three_way_partition": "select",
    "unique": "select",
    "unique_by_key": "select",
    "unique_count": "select",
    "run_length_encode": "select",
    "histogram": "histogram",
    "histogram_range": "histogram",
    "bincount": "histogram",
    "search": "search",
    "upper_bound": "search",
    "segmented": "segmented",
    "segmented_scan": "segmented",
    "sort": "sort",
    "segmented_sort": "sort",
    "topk": "sort",
    "merge": "merge",
}
FAMILIES: Final = tuple(_FAMILY_OF)
BACKENDS: Final = ("cpu", "cuda", "emulator")
# How elements come: arrays by their strides, and iterators of one dimension.
ITERATORS: Final = ("zip", "transform", "permutation", "reverse")
LAYOUTS: Final[tuple[str, ...]] = (*get_args(Pattern), *ITERATORS)
STRUCT: Final = "struct"
DTYPES: Final = (*(dtype.name for dtype in SCALARS), STRUCT)


@dataclass(frozen=True, slots=True)
class Hole:
    """What is refused on every device: of which the text says why, as the error does.

    `{shape}` and `{dtype}` in it are those of the input.
    """

    families: tuple[str, ...]
    dtypes: tuple[str, ...]
    layouts: tuple[str, ...]
    text: str

    def told(self, dtype: str, shape: tuple[int, ...] | str) -> str:
        """Return the text of the error for an input."""
        name = "Struct" if dtype == STRUCT else dtype
        return self.text.format(dtype=name, shape=shape)


# What is carried out through another library, by family, back end and types.
_THROUGH: Final = {
    ("sort", "cpu"): (PARTITIONED, "numpy.sort where there is no AVX-512, and along axes"),
}
_TURNED: Final = ("transposed",)
_NO_ORDER: Final = ("complex64", "complex128", STRUCT)
HOLES: Final = (
    *(
        Hole((name,), (STRUCT,), LAYOUTS, f"elements of {name} are {{dtype}}; expected: numbers")
        for name in ("argmin", "argmax")
    ),
    Hole(
        ("for_each",),
        DTYPES,
        ("broadcast",),
        "argument 'x' is read-only; an output is written",
    ),
    Hole(
        ("for_each",),
        DTYPES,
        ("zip", "transform"),
        "an iterator of kind Transform cannot be written to",
    ),
    Hole(
        ("adjacent_difference", "segmented", "segmented_scan", "segmented_sort", "bincount"),
        DTYPES,
        _TURNED,
        "`x` has shape {shape}; expected: one dimension",
    ),
    Hole(("merge",), DTYPES, _TURNED, "`a` has shape {shape}; expected: one dimension"),
    *(
        Hole((family,), DTYPES, _TURNED, f"`x` has 2 dimensions; {name} without `axis` takes one")
        for family, name in (("scan", "inclusive_scan"), ("exclusive_scan", "exclusive_scan"))
    ),
    *(
        Hole(
            (name,),
            DTYPES,
            _TURNED,
            f"`x` is of shape {{shape}}; {name} takes arrays of one dimension",
        )
        for name in (
            "select",
            "partition",
            "three_way_partition",
            "unique",
            "unique_count",
            "run_length_encode",
        )
    ),
    *(
        Hole(
            (family,),
            DTYPES,
            _TURNED,
            f"`keys` is of shape {{shape}}; {name} takes arrays of one dimension",
        )
        for family, name in (
            ("scan_by_key", "inclusive_scan_by_key"),
            ("reduce_by_key", "reduce_by_key"),
            ("unique_by_key", "unique_by_key"),
        )
    ),
    Hole(
        ("histogram", "histogram_range"),
        _NO_ORDER,
        LAYOUTS,
        "`x` has elements of {dtype}, which have no order",
    ),
    Hole(
        ("bincount",),
        (*(t.name for t in SCALARS if t.kind in ("float", "complex")), STRUCT),
        LAYOUTS,
        "`x` has elements of {dtype}; expected: integers",
    ),
    Hole(("topk",), (STRUCT,), LAYOUTS, "`x` has elements of {dtype}, which have no order"),
)


def hole(family: str, dtype: str, layout: str) -> Hole | None:
    """Return the hole in which a call lies, if any."""
    return next(
        (h for h in HOLES if family in h.families and dtype in h.dtypes and layout in h.layouts),
        None,
    )


@dataclass(frozen=True, slots=True)
class Capability:
    """One cell of the table: `reason` says why it is not supported, "" when it is.

    `through` names what of another library does the work, where one does.
    """

    family: str
    dtype: str
    layout: str
    backend: str
    reason: str = ""
    through: str = ""

    @property
    def supported(self) -> bool:
        """Whether a call like this is carried out; otherwise it raises."""
        return not self.reason


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The table; `rows` is all of it, its text puts together what belongs together.

    `refusals` are what is refused for more than a type and a layout, behind the rows in the text.
    """

    rows: tuple[Capability, ...]
    refusals: tuple[Refusal, ...] = ()

    def __str__(self) -> str:
        lines = [("family", "backend", "dtypes", "layouts", "supported"), *_merged(self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        text = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        if self.refusals:
            text += ["", "refused besides:", *(f"  {r.line()}" for r in self.refusals)]
        return "\n".join(text)

    def find(
        self,
        *,
        family: str | None = None,
        dtype: str | None = None,
        layout: str | None = None,
        backend: str | None = None,
    ) -> tuple[Capability, ...]:
        """Return the rows that have these values; what is not given matches all.

        Examples
        --------
        >>> from kernelmill.algorithms.capabilities import capabilities
        >>> rows = capabilities().find(family="reduce", dtype="float32", backend="cpu")
        >>> all(row.supported for row in rows)
        True
        """
        wanted = (family, dtype, layout, backend)
        return tuple(
            row
            for row in self.rows
            if all(
                w is None or w == found
                for w, found in zip(
                    wanted, (row.family, row.dtype, row.layout, row.backend), strict=True
                )
            )
        )


@once
def capabilities() -> Capabilities:
    """Return which family serves which element type and layout on which back end.

    "broadcast" is an array with zero strides, "transposed" one whose last axis is not the
    contiguous one, as `x.T`; the others are made by `km.iterators`. bfloat16 comes in arrays of
    `ml_dtypes` or torch; a reduction of structs takes an operator of the user. `refusals` are what
    options, operators and sizes of elements leave out.

    Examples
    --------
    >>> import kernelmill as km
    >>> km.capabilities().find(family="transform", backend="cpu")[0].supported
    True
    """
    reasons = {backend: absence(backend) for backend in BACKENDS}
    return Capabilities(
        tuple(
            Capability(
                family,
                dtype,
                layout,
                backend,
                reasons[backend] or _lacking(family, backend) or _refusal(family, dtype, layout),
                _through(family, dtype, backend),
            )
            for family, backend, dtype, layout in product(FAMILIES, BACKENDS, DTYPES, LAYOUTS)
        ),
        REFUSALS,
    )


def _lacking(family: str, device: str) -> str:
    return lacking(backend_named(device), _FAMILY_OF[family])


def _refusal(family: str, dtype: str, layout: str) -> str:
    found = hole(family, dtype, layout)
    return "" if found is None else found.told(dtype, "(m, n)")


def _through(family: str, dtype: str, backend: str) -> str:
    dtypes, text = _THROUGH.get((family, backend), ((), ""))
    return text if dtype in dtypes else ""


def absence(device: str) -> str:
    """Return why a device cannot be used; "" when it can."""
    try:
        Device(device)
    except DeviceError as error:
        return error.message.partition(": ")[2]
    return ""


def _merged(rows: Iterable[Capability]) -> Iterator[tuple[str, ...]]:
    """Yield one line for all types and layouts of a family and back end with the same answer."""
    answers: dict[tuple[str, str], dict[str, dict[str, tuple[str, str]]]] = {}
    for row in rows:
        of_dtype = answers.setdefault((row.family, row.backend), {}).setdefault(row.dtype, {})
        of_dtype[row.layout] = row.reason, row.through
    for (family, backend), of_backend in answers.items():
        alike: dict[tuple[tuple[str, tuple[str, str]], ...], list[str]] = {}
        for dtype, reasons in of_backend.items():
            alike.setdefault(tuple(reasons.items()), []).append(dtype)
        for answer, dtypes in alike.items():
            for reason, through in dict.fromkeys(found for _, found in answer):
                layouts = [layout for layout, found in answer if found == (reason, through)]
                yield (
                    family,
                    backend,
                    _names(dtypes, DTYPES),
                    _names(layouts, LAYOUTS),
                    f"no: {reason}" if reason else f"yes, through {through}" if through else "yes",
                )


def _names(found: list[str], everything: tuple[str, ...]) -> str:
    return "all" if len(found) == len(everything) else ", ".join(found)
