"""Operators written in C++ already, or compiled to LTO-IR: `RawOp`, and what IR holds of one.

An operator of this kind is a function of the IR without a body; how its text is printed is in
`cpp_raw.py`, how a call of it is translated in `frontend/raw.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeAlias

import numpy as np

from kernelmill.dtypes import DType, StructType, dtype_of
from kernelmill.errors import ArgumentError, DeviceError, DTypeError, NotImplementedHere

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["IMAGE_ALONE", "Raw", "RawOp", "Slot", "check_device"]

Element: TypeAlias = DType | StructType
Place: TypeAlias = Literal["host", "cuda"]

# Comments, strings and characters: they may hold brackets and names.
_NO_CODE: Final = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_HEAD: Final = re.compile(r"([A-Za-z_]\w*)\s*\([^;{}]*\)\s*(?:const\s*|noexcept\s*)*$", re.ASCII)
_WORD: Final = 8
IMAGE_ALONE: Final = "{symbol} is a raw operator of LTO-IR, which runs on GPUs alone"
_PYTHONS: Final = {bool: np.bool_, int: np.int64, float: np.float64, complex: np.complex128}


@dataclass(frozen=True, slots=True)
class Slot:
    """A value of the state: its scalar, or for an array its address, and what that points to."""

    value: np.generic
    element: Element | None = None
    place: Place | None = None

    @property
    def type(self) -> DType:
        """The type in which it is handed over."""
        found = dtype_of(self.value.dtype)
        assert isinstance(found, DType)
        return found


@dataclass(frozen=True, slots=True)
class Raw:
    """What stands in the place of a body: text that defines `symbol`, or an image that holds it.

    `pointers` are the elements of the last parameters that are addresses, None for scalars; `place`
    is whose memory they are of. `by_pointer` says how the function is called: see `RawOp`; then the
    last parameters are `words` of its state. `linked` are images that the image needs.
    """

    symbol: str
    text: str = ""
    image: bytes = field(default=b"", repr=False)
    pointers: tuple[Element | None, ...] = ()
    place: Place | None = None
    by_pointer: bool = False
    words: int = 0
    linked: tuple[bytes, ...] = field(default=(), repr=False)


class RawOp:
    """An operator given as C++ text or as LTO-IR; used wherever an operator is.

    Parameters
    ----------
    cpp
        Text that defines the function, and others that it calls: C++17 that includes nothing. On
        CUDA it is compiled with the kernel that calls it; there, functions are marked `__device__`,
        which the CPU reads over.
    ltoir
        LTO-IR that defines `extern "C" name` with these types, as bytes or object code. It is
        linked into the kernel, and inlined. For CUDA alone.
    arguments
        Types of the arguments. Values of narrower types are converted, others refused.
    result
        Type of the result.
    name
        The function; by default the last one that `cpp` defines.
    state
        A scalar or an array, or a tuple of them, that the function takes behind its arguments. An
        array is a pointer to its elements; it is kept as long as the operator is, and must be in
        the memory of the device that runs it. Another state compiles nothing: see `with_state`.
    commutative, identity
        What it obeys, as for `km.op`.
    by_pointer
        The function returns nothing, and takes pointers to its arguments and, last, to its result:
        `void f(void* x, void* y, void* result)`, as the operators of cuda.compute. A state is bytes
        then, and the function takes a pointer to a copy of them first, which is aligned to 16.
    linked
        Further LTO-IR, which defines functions that `ltoir` calls.

    Raises
    ------
    ArgumentError
        Neither or both forms are given, there is no such function, or a state is neither a scalar
        nor a contiguous array.
    DTypeError
        A type is not served.

    Examples
    --------
    >>> import numpy as np, kernelmill as km
    >>> clip = km.RawOp(
    ...     cpp="__device__ float clip(float x, float most) { return x < most ? x : most; }",
    ...     arguments=(km.float32,), result=km.float32, state=np.float32(2.5),
    ... )
    >>> km.transform(np.arange(5, dtype=np.float32), clip)
    array([0. , 1. , 2. , 2.5, 2.5], dtype=float32)
    >>> km.transform(np.arange(5, dtype=np.float32), clip.with_state(1.0))
    array([0., 1., 1., 1., 1.], dtype=float32)
    """

    __slots__ = ("arguments", "commutative", "identity", "name", "raw", "result",
                 "slots", "state")  # fmt: skip

    def __init__(
        self,
        *,
        cpp: str | None = None,
        ltoir: Any = None,  # Any: bytes, or object code of ours or of cuda.core
        arguments: Sequence[object],
        result: object,
        name: str = "",
        state: object = (),
        commutative: bool = False,
        identity: object = None,
        by_pointer: bool = False,
        linked: Sequence[Any] = (),  # Any: as `ltoir`
    ) -> None:
        if by_pointer and state != () and not isinstance(state, (bytes, bytearray)):
            raise ArgumentError(
                f"`state` is {state!r}; that of an operator which is called by pointer is bytes",
                hint="declare it with values: `float f(float x, const float* table)`",
            )
        if linked and ltoir is None:
            raise ArgumentError("`linked` is LTO-IR that `ltoir` calls; there is no `ltoir`")
        if (cpp is None) == (ltoir is None):
            given = "neither" if cpp is None else "both"
            raise ArgumentError(f"RawOp takes `cpp` or `ltoir`; {given} was given")
        text, image = cpp or "", b"" if ltoir is None else _image(ltoir)
        self.name = name or _last_function(text, image)
        if not _IDENTIFIER.fullmatch(self.name):
            raise ArgumentError(f"`name` is {self.name!r}; expected: the name of a function")
        if text and not re.search(rf"\b{self.name}\b", _NO_CODE.sub(" ", text)):
            raise ArgumentError(f"`cpp` defines no function {self.name!r}")
        self.arguments, self.result = _types(arguments), dtype_of(result)
        self.commutative, self.identity = commutative, identity
        further = tuple(map(_image, linked))
        self._take(Raw(self.name, text, image, by_pointer=by_pointer, linked=further), state)

    def _take(self, raw: Raw, state: object) -> None:
        self.state = state if isinstance(state, tuple) else (state,)
        if raw.by_pointer:
            self.slots = _words(self.state)
            self.raw = replace(raw, words=len(self.slots))
            return
        self.slots = tuple(_slot(value, i) for i, value in enumerate(self.state))
        places = sorted({s.place for s in self.slots if s.place is not None})
        if len(places) > 1:
            raise ArgumentError("`state` holds arrays of the host and of a GPU; expected: of one")
        pointers = tuple(s.element for s in self.slots)
        place = places[0] if places else None
        self.raw = replace(raw, pointers=pointers, place=place)

    @property
    def key(self) -> tuple[object, ...]:
        """What tells its code and algebra apart from others', whatever the state."""
        types = tuple(s.type for s in self.slots)
        algebra = self.commutative, repr(self.identity)
        return (RawOp, self.raw, self.arguments, self.result, types, algebra)

    @property
    def __name__(self) -> str:
        """What errors and generated code call it."""
        return self.name

    def __repr__(self) -> str:
        types = ", ".join(map(str, self.arguments))
        return f"<kernelmill.RawOp {self.name}({types}) -> {self.result}>"

    def __call__(self, *_: object) -> NoReturn:
        """Refuse: there is no Python function in it."""
        raise NotImplementedHere(
            f"{self.name} is a raw operator: it has no Python form that could be called",
            hint=f"apply it to arrays: km.transform(x, {self.name}); or call it in an operator",
        )

    def with_state(self, state: object) -> RawOp:
        """Return the operator with another state of the same types.

        Raises ArgumentError where the types differ.
        """
        made = object.__new__(RawOp)
        made.name, made.arguments, made.result = self.name, self.arguments, self.result
        made.commutative, made.identity = self.commutative, self.identity
        values = state if isinstance(state, tuple) else (state,)
        if self.raw.by_pointer:
            if len(_words(values)) != len(self.slots):
                raise ArgumentError(f"the state of {self.name} is bytes of another number")
            made._take(self.raw, values)
            return made
        if len(values) != len(self.slots):
            raise ArgumentError(
                f"the state of {self.name} has {len(self.slots)} values; {len(values)} were given"
            )
        made._take(self.raw, tuple(map(_alike, values, self.slots)))
        if made.raw != self.raw:
            raise ArgumentError(f"the state of {self.name} is of other types than the one before")
        return made


def check_device(raw: Raw, device: str) -> None:
    """Refuse a raw operator that cannot run on a device.

    Raises
    ------
    NotImplementedHere
        It is LTO-IR, and the device is no GPU.
    DeviceError
        An array of its state is in other memory than that of the device.
    """
    on_gpu = device.startswith("cuda")
    if raw.image and not on_gpu:
        raise NotImplementedHere(
            IMAGE_ALONE.format(symbol=raw.symbol),
            hint="give its C++ text for other devices: km.RawOp(cpp=…)",
        )
    if raw.place not in (None, "cuda" if on_gpu else "host"):
        where = "on a GPU" if raw.place == "cuda" else "in the memory of the host"
        raise DeviceError(
            f"the state of the raw operator {raw.symbol} is {where}; it runs on {device}",
            hint="copy it to where the operator runs, and pass it to `with_state`",
        )


def _alike(value: object, slot: Slot) -> object:
    """Return a Python number as the type that the state had before, where it had one."""
    if slot.element is None and type(value) in _PYTHONS:
        return slot.value.dtype.type(value)
    return value


def _types(arguments: Sequence[object]) -> tuple[Element, ...]:
    if isinstance(arguments, (str, bytes)) or not hasattr(arguments, "__len__"):
        raise ArgumentError(
            f"`arguments` is {arguments!r}; expected: a type for each argument",
            hint="one argument is `arguments=(km.float32,)`",
        )
    return tuple(dtype_of(a) for a in arguments)


def _image(given: Any) -> bytes:
    if isinstance(given, (bytes, bytearray)):
        return bytes(given)
    if getattr(given, "code_type", None) == "ltoir":
        return bytes(given.code)
    raise ArgumentError(
        f"`ltoir` is a {type(given).__qualname__}; expected: bytes, or object code of LTO-IR",
        hint="km.Program(text).compile('ltoir', arch='sm_80')",
    )


def _last_function(text: str, image: bytes) -> str:
    """Return the name of the function that is defined last, outside of all braces."""
    if image:
        raise ArgumentError("`name` is missing: LTO-IR does not say which function is meant")
    found, start, depth = "", 0, 0
    code = _NO_CODE.sub(" ", text)
    for at, mark in ((m.start(), m[0]) for m in re.finditer(r"[{};]", code)):
        if mark == "{":
            head = _HEAD.search(code[start:at]) if depth == 0 else None
            found = head[1] if head else found
            depth += 1
        elif mark == "}":
            depth -= 1
        if depth == 0:
            start = at + 1
    if not found:
        raise ArgumentError(
            "`cpp` defines no function",
            hint="for example `__device__ float twice(float x) { return 2 * x; }`",
        )
    return found


# ----------------------------------------------------------------------------- state


def _words(state: tuple[object, ...]) -> tuple[Slot, ...]:
    """Return the bytes of a state as words, the last one filled up with zeros."""
    held = b"".join(s for s in state if isinstance(s, (bytes, bytearray)))
    filled = held + bytes(-len(held) % _WORD)
    return tuple(Slot(word) for word in np.frombuffer(filled, "<u8").astype(np.uint64))


def _slot(value: Any, index: int) -> Slot:
    number = _PYTHONS.get(type(value))
    if number is not None:
        try:
            return Slot(number(value))
        except OverflowError:
            raise ArgumentError(f"state {index} is {value}, which int64 does not hold") from None
    if isinstance(value, np.generic) and value.dtype.names is None:
        return Slot(value)
    interface = getattr(value, "__cuda_array_interface__", None)
    place: Place = "cuda" if interface is not None else "host"
    interface = interface or getattr(value, "__array_interface__", None)
    if interface is not None:
        return _pointer(value, interface, place, index)
    if hasattr(value, "data_ptr") and hasattr(value, "is_contiguous"):  # a tensor of torch
        if not value.is_contiguous():
            _refuse_strides(index)
        return Slot(np.uint64(value.data_ptr()), dtype_of(value.dtype), place)
    raise ArgumentError(
        f"state {index} is a {type(value).__qualname__}; expected: a number, or an array of NumPy, "
        "CuPy or torch",
    )


def _pointer(value: Any, interface: Any, place: Place, index: int) -> Slot:
    described = np.dtype(interface["typestr"])
    if described.kind == "V":
        described = np.lib.format.descr_to_dtype(interface["descr"])  # knows what is padding
    strides, step = interface.get("strides"), described.itemsize
    for extent, stride in zip(reversed(interface["shape"]), reversed(strides or ()), strict=False):
        if extent > 1 and stride != step:
            _refuse_strides(index)
        step *= extent
    spelled = getattr(value, "dtype", described)
    try:
        element = dtype_of(spelled)
    except DTypeError as error:
        raise DTypeError(f"state {index}: {error.message}", hint=error.hint) from None
    return Slot(np.uint64(interface["data"][0] or 0), element, place)


def _refuse_strides(index: int) -> NoReturn:
    raise ArgumentError(
        f"state {index} is an array that is not C-contiguous; the operator is given a pointer",
        hint="pass a copy: `np.ascontiguousarray(x)`",
    )
