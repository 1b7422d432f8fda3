"""`gpu_struct`: struct classes as `cuda.compute` has them, on those of kernelmill."""

from __future__ import annotations

from typing import Any, get_type_hints

import numpy as np

from kernelmill.compat.cuda_compute import types
from kernelmill.structs import struct as km_struct

__all__ = ["gpu_struct", "is_struct_class"]


def gpu_struct(field_dict: Any, name: str = "AnonymousStruct") -> Any:  # Any: made at run time
    """Make a struct class from a dict, a structured NumPy type or an annotated class.

    Parameters
    ----------
    field_dict
        Names to types: of NumPy, descriptors, other struct classes, or dicts for structs inside.
    name
        Of the class.

    Returns
    -------
    type
        A constructor, in Python (positional, by keyword, of a dict) and inside operators; `dtype`
        is its NumPy type.

    Raises
    ------
    ValueError
        A name of a field is no identifier.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelmill.compat.cuda_compute import gpu_struct
    >>> Pair = gpu_struct({"first": np.int32, "second": np.float64}, "Pair")
    >>> Pair(1, 2.5).second, Pair.dtype.itemsize
    (np.float64(2.5), 16)
    """
    if isinstance(field_dict, np.dtype):
        found: Any = field_dict.fields or {}
        field_dict = {label: found[label][0] for label in field_dict.names or ()}
    elif isinstance(field_dict, type) and hasattr(field_dict, "__annotations__"):
        name, field_dict = field_dict.__name__, get_type_hints(field_dict)
    for label in field_dict:
        if not isinstance(label, str) or not label.isidentifier():
            raise ValueError(f"gpu_struct field name {label!r} is not a valid Python identifier")
    spec = {label: _field_type(kind, label) for label, kind in field_dict.items()}
    described = {label: _descriptor(kind) for label, kind in spec.items()}
    layout = {
        label: spec[label] if is_struct_class(spec[label]) else descriptor.dtype
        for label, descriptor in described.items()
    }
    base = km_struct(layout, name=name)
    return type(
        name,
        (_Constructed, base),
        {
            "__slots__": (),
            "__module__": __name__,
            "_field_spec": spec,
            "_type_descriptor": types.struct(described, name),
        },
    )


def is_struct_class(kind: object) -> bool:
    """Return whether a type was made by `gpu_struct`."""
    return isinstance(kind, type) and issubclass(kind, _Constructed)


class _Constructed:
    """How an instance is made: from values in order, by keyword, or from one dict."""

    __slots__ = ()
    _field_spec: dict[str, Any]
    _type_descriptor: types.StructTypeDescriptor
    dtype: np.dtype[Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:  # Any: a tuple of the fields' values
        spec = cls._field_spec
        if args and isinstance(args[0], dict):
            given = args[0]
        elif args:
            assert len(args) == len(spec), f"{cls.__name__} has {len(spec)} fields, got {len(args)}"
            given = dict(zip(spec, args, strict=True))
        else:
            given = kwargs
        assert given.keys() == spec.keys(), f"{cls.__name__} has the fields {', '.join(spec)}"
        values = [_coerced(spec[label], given[label]) for label in spec]
        return super().__new__(cls, *values)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return np.array(_plain(self), self.dtype).__array_interface__


def _plain(value: Any) -> Any:  # Any: a scalar or a tuple of them, as NumPy takes records
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _coerced(kind: Any, value: Any) -> Any:  # Any: as in `_Constructed`
    if isinstance(value, _Constructed):
        return value
    if is_struct_class(kind):
        if isinstance(value, dict):
            return kind(**value)
        if isinstance(value, np.void):
            value = value.item()
        if isinstance(value, tuple):
            return kind(*value)
        raise TypeError(f"a {type(value).__name__} is no value of {kind.__name__}")
    return _descriptor(kind).dtype.type(value)  # type: ignore[union-attr]  # checked when made


def _field_type(kind: Any, label: str) -> Any:  # Any: what a user may write for a type
    if isinstance(kind, dict):
        return gpu_struct(kind, label)
    return kind


def _descriptor(kind: Any) -> types.TypeDescriptor:  # Any: as above
    if isinstance(kind, types.TypeDescriptor):
        return kind
    if is_struct_class(kind):
        found: types.TypeDescriptor = kind._type_descriptor  # noqa: SLF001 - of this module's class
        return found
    return types.from_numpy_dtype(kind)
