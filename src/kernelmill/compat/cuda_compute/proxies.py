"""Placeholders for arrays and values whose data comes later."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

__all__ = ["ProxyArray", "ProxyValue"]


class _Interface(dict[str, Any]):
    """An array interface that has no data."""

    def __missing__(self, key: str) -> Any:
        if key == "data":
            _refuse("ProxyArray", "an array")
        raise KeyError(key)

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key == "data" else super().get(key, default)


def _refuse(name: str, wanted: str) -> NoReturn:
    raise RuntimeError(f"a {name} has no data; pass {wanted} to run it")


class _Proxy:
    __slots__ = ("_dtype",)
    _stands_for = ""

    def __init__(self, dtype: Any) -> None:
        self._dtype: np.dtype[Any] = np.dtype(dtype)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return self._dtype

    def refuse(self) -> NoReturn:
        """Raise RuntimeError: there is no data."""
        _refuse(type(self).__name__, self._stands_for)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dtype={self._dtype})"


class ProxyArray(_Proxy):
    """Stands for an array of a type where an algorithm is made; it cannot be run on one."""

    __slots__ = ()
    _stands_for = "an array"

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return _Interface(shape=(1,), typestr=self._dtype.str, version=3, strides=None)


class ProxyValue(_Proxy):
    """Stands for a value of a type where an algorithm is made; it cannot be run with one."""

    __slots__ = ()
    _stands_for = "a value"
