"""Names of the surrounding Python: cells, globals, builtins, attributes; and what is captured.

Scalars become run-time captures that are read at each call; so do addresses, extents and strides of
arrays. Objects that shape the program are noted with how to find them again. Names of local
variables are not resolved here.
"""

from __future__ import annotations

import builtins
import dataclasses
import difflib
import enum
import functools
import inspect
import itertools
import math
import operator
import sys
import types
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.compiler import arrays, ir
from kernelmill.compiler.frontend.values import OBJECTS, Dimension, Known, Memory, Reader, Value
from kernelmill.compiler.intrinsics import SPELLINGS
from kernelmill.compiler.kernel_ir import Array
from kernelmill.compiler.literals import weak_type_of
from kernelmill.dtypes import DType, StructType, TupleType, Type, dtype_of, uint64, weak_int
from kernelmill.errors import DTypeError, OperatorError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping

__all__ = [
    "Baked",
    "CapturedScalar",
    "Captures",
    "Surroundings",
    "attribute",
    "captured_type",
    "item_of",
    "part_of",
]


@dataclass(frozen=True, slots=True)
class CapturedScalar:
    """A scalar of the user's scope that is read at each call.

    `type` is weak for a Python int, float or complex and strong otherwise; `stored` is the type as
    which it is handed over, weak float for a Python int that only meets floats; `limits` are the
    integer types that a Python int is converted to, whose range its value is checked against at
    each call.
    `read_from` reads it for another function of the same code, such as a lambda made again.

    With `array` it is the address of an array of that type, which is what is read; `written` says
    that the operator writes to it.
    """

    name: str
    type: Type
    stored: Type
    read: Callable[[], object]
    limits: tuple[DType, ...]
    read_from: Callable[[object], object]
    array: arrays.ArrayType | None = None
    written: bool = False


@dataclass(frozen=True, slots=True)
class Baked:
    """An object that shaped the program: it holds as long as `read()` still gives `value`.

    `read_from` reads it for another function of the same code.
    """

    name: str
    read: Callable[[], object]
    value: object
    read_from: Callable[[object], object]


def captured_type(value: object) -> Type | None:
    """Return the type with which a Python object is captured, or None when it is no scalar.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compiler.frontend import captured_type
    >>> captured_type(2.5), captured_type(np.int8(1)), captured_type("no")
    (weak float, kernelmill.int8, None)
    """
    if isinstance(value, np.generic):
        try:
            found = dtype_of(type(value))
        except DTypeError:
            return None
        return found if isinstance(found, DType) else None
    if isinstance(value, (bool, int, float, complex)):
        return weak_type_of(value)
    return None


# ----------------------------------------------------------------------------- names


@dataclass(frozen=True, slots=True, eq=False)
class Surroundings:
    """What a function sees outside itself: its closure's cells, its globals, the builtins.

    `rooted` says that the function is the operator itself: its scope is then read through it, so
    that the translation serves all functions of the same code.
    """

    cells: Mapping[str, types.CellType]
    globals: dict[str, object]
    rooted: bool = False

    @staticmethod
    def of(function: types.FunctionType, *, rooted: bool) -> Surroundings:
        """Return the surroundings of a Python function."""
        cells = function.__closure__ or ()
        names = function.__code__.co_freevars
        return Surroundings(dict(zip(names, cells, strict=True)), function.__globals__, rooted)

    def find(self, name: str) -> Known | None:
        """Resolve a name as Python does, or return None when it is not defined."""
        if name in self.cells:
            return self._in_cell(name)
        space, rooted = self.globals, self.rooted
        if name in space:
            read = _global_of_root(name) if rooted else lambda _: space[name]
            return Known(name, space[name], read, ("global", id(space), name))
        found = getattr(builtins, name, _MISSING)
        if found is _MISSING:
            return None
        return Known(name, found, lambda _: space.get(name, found), ("builtin", id(space), name))

    def _in_cell(self, name: str) -> Known:
        cell = self.cells[name]
        try:
            value = cell.cell_contents
        except ValueError:
            raise OperatorError(
                f"`{name}` of the enclosing function has no value yet",
                hint=f"set `{name}` before the operator is used",
            ) from None
        if self.rooted:
            read = _cell_of_root(list(self.cells).index(name))
        else:

            def read(_: object) -> object:
                return cell.cell_contents

        return Known(name, value, read, ("cell", id(cell)))

    def names(self) -> Iterator[str]:
        """Yield all names that are defined here, for suggestions."""
        yield from self.cells
        yield from self.globals
        yield from (n for n in SPELLINGS if n in vars(builtins))


_MISSING: Final = object()


def _cell_of_root(index: int) -> Reader:
    def read(root: Any) -> object:  # Any: the operator's Python function
        return root.__closure__[index].cell_contents

    return read


def _global_of_root(name: str) -> Reader:
    def read(root: Any) -> object:  # Any: the operator's Python function
        return root.__globals__[name]

    return read


def nearest(name: str, names: Iterator[str] | list[str], *, cutoff: float = 0.7) -> str:
    """Return ` (did you mean `exp`?)` for a name that is close to one of `names`, or nothing."""
    others = [n for n in names if n != name]
    close = difflib.get_close_matches(name, others, n=1, cutoff=cutoff)
    return f" (did you mean `{close[0]}`?)" if close else ""


# ----------------------------------------------------------------------------- attributes


@functools.lru_cache(maxsize=1)
def _constant_modules() -> tuple[types.ModuleType, ...]:
    """Return the modules whose attributes are taken as constants: only the module is checked."""
    return (math, np, operator, builtins, sys.modules["kernelmill"])


def attribute(owner: Known, name: str) -> Known:
    """Return an attribute of a Python object, without running the user's code.

    Raises OperatorError when there is none, or when reading it could run a property.
    """
    value = _plain_attribute(owner, name)
    full = f"{owner.name}.{name}"
    module = any(owner.value is m for m in _constant_modules())
    if owner.constant or module or isinstance(owner.value, (np.finfo, np.iinfo)):
        return Known(full, value, lambda _: value, ("constant", full), constant=True, anchor=owner)
    return part_of(owner, f".{name}", value, operator.attrgetter(name))


def part_of(owner: Known, label: str, value: object, step: Callable[[Any], object]) -> Known:
    """Return a part of an object that `step` takes from it; a part of a constant is constant."""
    parent, full = owner.read, f"{owner.name}{label}"
    if owner.constant:
        return Known(full, value, lambda _: value, ("constant", full), constant=True, anchor=owner)
    return Known(full, value, lambda root: step(parent(root)), (owner.key, label))


def _plain_attribute(owner: Known, name: str) -> object:
    found = owner.value
    if isinstance(found, types.ModuleType | np.finfo | np.iinfo):
        value = getattr(found, name, _MISSING)
    elif _is_plain(found, name) or (name == "value" and _has_plain_value(found)):
        value = getattr(found, name)
    else:
        value = _MISSING
    if value is not _MISSING:
        return value
    if isinstance(getattr(type(found), name, None), property):
        raise OperatorError(
            f"`{owner.name}.{name}` is a property, which an operator does not run",
            hint=f"read it outside: `{name} = {owner.name}.{name}`",
        )
    kind = "module " if isinstance(found, types.ModuleType) else ""
    close = nearest(name, [n for n in dir(found) if not n.startswith("_")], cutoff=0.65)
    raise OperatorError(
        f"{kind}`{owner.name}` has no attribute `{name}`{close}",
        hint="an operator reads plain attributes of modules, classes and objects",
    )


def _has_plain_value(owner: object) -> bool:
    """Whether `.value` of a member of an enumeration is what `enum` makes it."""
    usual = inspect.getattr_static(enum.Enum, "value")
    return isinstance(owner, enum.Enum) and inspect.getattr_static(type(owner), "value") is usual


def _is_plain(owner: object, name: str) -> bool:
    """Whether reading the attribute runs no code of the user's: no property, no `__getattr__`."""
    if isinstance(owner, type):
        holder = next((c for c in owner.__mro__ if name in vars(c)), None)
        value = vars(holder).get(name) if holder else None
        plain = not isinstance(value, property | classmethod) or _is_method(value)
        return holder is not None and plain
    if isinstance(owner, tuple):
        return name in getattr(owner, "_fields", ())
    if name in getattr(owner, "__dict__", ()):
        return True
    holder = next((c for c in type(owner).__mro__ if name in vars(c)), None)
    value = vars(holder).get(name, _MISSING) if holder else _MISSING
    if _is_method(value) or isinstance(value, types.MemberDescriptorType):
        return True
    data = is_dataclass(owner) or not hasattr(type(value), "__get__")
    return holder is not None and data and not isinstance(value, property)


def _is_method(value: object) -> bool:
    """Whether it is a function of a class, or a class method or static method made of one."""
    inner = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    return isinstance(inner, types.FunctionType)


# ----------------------------------------------------------------------------- captures


class Captures:
    """The captured scalars and baked objects of one program, by the place where they were found."""

    def __init__(self) -> None:
        self.scalars: list[tuple[Known, Type]] = []
        self.baked: list[Known] = []
        self.arrays: dict[int, arrays.ArrayType] = {}  # by the slot of the address
        self._slots: dict[Hashable, int] = {}
        self._seen: set[Hashable] = set()
        self._memory: dict[Hashable, Memory] = {}

    def bake(self, known: Known) -> object:
        """Note that the program depends on an object; return the object."""
        root = known
        while root.anchor is not None:
            root = root.anchor
        if root.key not in self._seen:
            self._seen.add(root.key)
            self.baked.append(root)
        return known.value

    def value_of(self, known: Known) -> Value:
        """Return an object as a value: captures, alone, in a tuple or struct; else itself."""
        type_ = captured_type(known.value)
        if type_ is not None:
            return self._scalar(known, type_)
        struct = getattr(type(known.value), "__kernelmill_struct__", None)
        if isinstance(struct, StructType):
            return self._struct(known, struct)
        if isinstance(known.value, tuple):
            return self._tuple(known, known.value)
        array = None if known.constant else arrays.array_type(known.value)
        return known if array is None else self._array(known, array)

    def _array(self, known: Known, type_: arrays.ArrayType) -> Value:
        """Bake what kind of array it is; capture its address, extents and strides."""
        found = self._memory.get(known.key)
        if found is not None:
            return found
        kind = part_of(known, ".dtype", type_, arrays.array_type)
        self.bake(dataclasses.replace(kind, name=f"type({known.name})"))
        base = self._scalar(dataclasses.replace(known, key=(known.key, "address")), uint64)
        assert isinstance(base, ir.Capture)
        self.arrays[base.index] = type_
        extents = self._numbers(known, "shape", arrays.extent, type_.ndim)
        strides = (
            () if type_.contiguous else self._numbers(known, "strides", arrays.stride, type_.ndim)
        )
        name = known.name.rpartition(".")[2]
        taken = {m.array.name for m in self._memory.values()}
        unique = next(n for n in _numbered(name) if n not in taken)
        layout: Any = "contiguous" if type_.contiguous else "strided"
        array = Array(unique, type_.dtype, type_.ndim, "captured", layout=layout)
        index = tuple(Dimension(None, e) for e in extents)
        found = self._memory[known.key] = Memory(array, index, extents, base, strides)
        return found

    def _numbers(
        self,
        known: Known,
        label: str,
        look: Callable[[Any, int], int | None],
        count: int,
    ) -> tuple[ir.Expr, ...]:
        """Capture a number of each dimension of an array."""
        made: list[ir.Expr] = []
        for dim in range(count):
            part = part_of(known, f".{label}[{dim}]", look(known.value, dim), _number(look, dim))
            made.append(self._scalar(part, weak_int))
        return tuple(made)

    def _scalar(self, known: Known, type_: Type) -> ir.Expr:
        if known.constant:
            self.bake(known)
            value = known.value
            return ir.Const(value.item() if isinstance(value, np.generic) else value, type_)  # type: ignore[arg-type]  # captured_type admits scalars only
        slot = self._slots.get(known.key)
        if slot is None:
            slot = self._slots[known.key] = len(self.scalars)
            self.scalars.append((known, type_))
        return ir.Capture(slot, self.scalars[slot][1])

    def _struct(self, known: Known, type_: StructType) -> Value:
        """Bake the class of a struct, and capture its fields one by one."""
        owner = part_of(known, ".__class__", type(known.value), type)
        self.bake(dataclasses.replace(owner, name=f"type({known.name})"))
        names = [f.name for f in type_.fields]
        parts = [self.value_of(attribute(known, name)) for name in names]
        values = tuple(p for p in parts if not isinstance(p, OBJECTS))
        return ir.MakeStruct(values, type_) if len(values) == len(parts) else known

    def _tuple(self, known: Known, items: tuple[object, ...]) -> Value:
        """Bake the length of a tuple, and capture its scalars one by one."""
        parts = [self.value_of(item_of(known, i)) for i in range(len(items))]
        values = tuple(p for p in parts if not isinstance(p, OBJECTS))
        if len(values) < len(parts):
            return known
        self.bake_length(known)
        return ir.MakeTuple(values, TupleType(tuple(v.type for v in values)))

    def bake_length(self, known: Known) -> int:
        """Note that the program depends on the length of a tuple; return it."""
        assert isinstance(known.value, tuple)
        length = part_of(known, ".__len__", len(known.value), _length)
        self.bake(dataclasses.replace(length, name=f"len({known.name})"))
        return len(known.value)


def _number(look: Callable[[Any, int], int | None], dim: int) -> Callable[[Any], object]:
    return lambda array: look(array, dim)


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}_{count}" for count in itertools.count(2))


def _length(found: object) -> int | None:
    return len(found) if isinstance(found, tuple) else None


def item_of(known: Known, index: int) -> Known:
    """Return an item of a tuple."""
    assert isinstance(known.value, tuple)
    return part_of(known, f"[{index}]", known.value[index], operator.itemgetter(index))
