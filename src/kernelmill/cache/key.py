"""The key of a compiled thing: one sha256 over everything that made it. No files are read here.

The encoding is injective (each value starts with its type and its length), so two different sets
of parts never run together into the same bytes, and canonical (names are sorted), so the order in
which parts are given does not matter.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import ArgumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["digest"]

# A change of the encoding changes this text, and so every key.
_DOMAIN: Final = b"kernelmill digest 1\0"
_LENGTH: Final = struct.Struct("<Q")
_DOUBLE: Final = struct.Struct("<d")


def digest(**parts: object) -> str:
    """Return the key, 64 hexadecimal digits, of what was made from `parts`.

    Parameters
    ----------
    **parts
        Values of type None, bool, int, float, str, bytes, and tuples, lists, sets, frozensets and
        mappings of these. `1`, `1.0`, `True` and `"1"` are four different values; a list equals a
        tuple, a set a frozenset. The order of names, of a mapping's items and of a set's members
        does not matter.

    Raises
    ------
    ArgumentError
        A part is of another type, subclasses included: a NumPy scalar, an enumeration member, an
        object whose text may hold an address.

    Examples
    --------
    >>> from kernelmill.cache import digest
    >>> digest(source="int f();", options=("-O3",)) == digest(options=["-O3"], source="int f();")
    True
    >>> digest(a="bc", d="") == digest(a="b", cd="")
    False
    """
    return hashlib.sha256(_DOMAIN + _mapping(parts, "")).hexdigest()


def _framed(tag: bytes, payload: bytes) -> bytes:
    return tag + _LENGTH.pack(len(payload)) + payload


def _encode(value: object, where: str) -> bytes:
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        accepted = ", ".join("None" if t is type(None) else t.__name__ for t in _ENCODERS)
        raise ArgumentError(
            f"digest part {where} is of type {type(value).__qualname__}; accepted: {accepted}",
            hint="turn it into one of these so that equal things give equal parts",
        )
    return encoder(value, where)


def _integer(value: int, _: str) -> bytes:
    return _framed(b"i", value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True))


def _text(value: str, _: str) -> bytes:
    return _framed(b"s", value.encode("utf-8", "surrogatepass"))


def _sequence(value: tuple[object, ...] | list[object], where: str) -> bytes:
    items = [_encode(item, f"{where}[{i}]") for i, item in enumerate(value)]
    return _framed(b"t", b"".join(items))


def _set(value: frozenset[object] | set[object], where: str) -> bytes:
    return _framed(b"e", b"".join(sorted(_encode(item, f"{where}{{}}") for item in value)))


# Any: a mapping is invariant in its keys, and those of `parts` are str.
def _mapping(value: Mapping[Any, object], where: str) -> bytes:
    items = []
    for key, item in value.items():
        place = f"{where}[{key!r}]" if where else str(key)
        items.append(_encode(key, place) + _encode(item, place))
    return _framed(b"m", b"".join(sorted(items)))


_ENCODERS: Final[dict[type, Callable[..., bytes]]] = {
    type(None): lambda _value, _where: b"n",
    bool: lambda value, _where: b"T" if value else b"F",
    int: _integer,
    float: lambda value, _where: b"f" + _DOUBLE.pack(value),
    str: _text,
    bytes: lambda value, _where: _framed(b"b", value),
    tuple: _sequence,
    list: _sequence,
    frozenset: _set,
    set: _set,
    dict: _mapping,
}
