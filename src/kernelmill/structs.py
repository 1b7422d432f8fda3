"""Struct classes: what a user declares, constructs and reads; their layout is in `dtypes`."""

from __future__ import annotations

import collections
import dataclasses
import inspect
import operator
import sys
from typing import Any

import numpy as np

from kernelmill.dtypes import DType, Field, StructType, dtype_of
from kernelmill.errors import DTypeError

__all__ = ["class_of", "struct"]


def struct(spec: object, *, name: str | None = None) -> Any:  # Any: a class made at run time
    """Make a struct class from a decorated class, a NumPy structured dtype or a dict of fields.

    The class is a constructor inside operators and in plain Python, where its instances are named
    tuples of NumPy scalars; `.dtype` is its NumPy dtype.
    Fields keep C layout, except that a NumPy dtype keeps its own offsets (packed or padded).

    Examples
    --------
    >>> import kernelmill as km
    >>> @km.struct
    ... class RGB:
    ...     r: km.uint8
    ...     g: km.uint8
    ...     b: km.uint8
    >>> RGB.dtype.itemsize, RGB(1, 2, 3).g
    (3, np.uint8(2))
    """
    if isinstance(spec, type) and not issubclass(spec, np.generic):
        label = name or spec.__name__
        made = dataclasses.replace(_layout_of(_annotations(spec), label), name=label)
        return _struct_class(made, spec, spec.__module__)
    found = dtype_of(spec)
    if not isinstance(found, StructType):
        raise DTypeError(
            f"struct() expects a class, a structured dtype or a dict, got {spec!r}",
            hint="decorate a class whose fields are annotated: `x: km.float32`",
        )
    module = str(sys._getframe(1).f_globals.get("__name__", "__main__"))  # noqa: SLF001 - for pickle
    return _struct_class(dataclasses.replace(found, name=name or found.name), None, module)


def class_of(type_: StructType) -> Any:  # Any: a class made at run time
    """Return a struct class of exactly this type."""
    return _struct_class(type_, None, __name__)


def _layout_of(fields: dict[str, Any], label: str) -> StructType:
    if not fields:
        raise DTypeError(
            f"struct {label} has no fields", hint="declare at least one, as `x: km.float32`"
        )
    found = dtype_of(fields)
    assert isinstance(found, StructType)
    return found


def _annotations(cls: type) -> dict[str, Any]:
    """Return the field annotations; strings (`from __future__ import annotations`) are resolved."""
    frame = sys._getframe(2)  # noqa: SLF001 - the class may stand inside a function
    return inspect.get_annotations(
        cls, globals=frame.f_globals, locals=dict(frame.f_locals), eval_str=True
    )


def _struct_class(type_: StructType, like: type | None, module: str) -> type:
    """Build the Python class: a named tuple whose items are NumPy scalars, so NumPy takes it."""
    private = {f.name: i for i, f in enumerate(type_.fields) if f.name.startswith("_")}
    public = {name: f"field{i}" for name, i in private.items()}  # no named tuple begins one with _
    names = [public.get(f.name, f.name) for f in type_.fields]
    plain = collections.namedtuple(type_.name, names, module=module)  # type: ignore[misc]  # noqa: PYI024 - made at run time

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:  # Any: a tuple of the fields' scalars
        given: tuple[Any, ...] = plain(*args, **{public.get(k, k): v for k, v in kwargs.items()})
        values = [_field_value(given[i], field) for i, field in enumerate(type_.fields)]
        return plain.__new__(cls, *values)

    own = {} if like is None else dict(vars(like))
    members = {name: value for name, value in own.items() if _is_member(name)}
    fields = ", ".join(f"{f.name}: {f.type}" for f in type_.fields)
    return type(
        type_.name,
        (plain,),
        {
            **{name: property(operator.itemgetter(i)) for name, i in private.items()},
            **members,
            "__slots__": (),
            "__new__": new,
            "__doc__": (like.__doc__ if like is not None else None) or f"Struct of {fields}.",
            "__module__": module,
            "__qualname__": like.__qualname__ if like is not None else type_.name,
            "__kernelmill_struct__": type_,
            "dtype": type_.to_numpy(),
        },
    )


def _is_member(name: str) -> bool:
    """Whether a name of the decorated class is a method or constant of the user's."""
    return not (name.startswith("__") and name.endswith("__"))


def _field_value(value: Any, field: Field) -> Any:  # Any: a scalar or a struct
    return field.type.to_numpy().type(value) if isinstance(field.type, DType) else value
