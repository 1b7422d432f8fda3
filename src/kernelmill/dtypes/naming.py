"""`dtype_of`: what a user may write for a type, as ours."""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np

from kernelmill.dtypes.elements import SCALARS, DType, Field, StructType, c_layout
from kernelmill.errors import DTypeError

__all__ = [
    "dtype_of",
]

_BY_NAME: Final = {t.name: t for t in SCALARS}


def dtype_of(spec: object) -> DType | StructType:
    """Return the type that `spec` names: ours, a NumPy dtype or scalar class, a torch dtype, a
    struct class, a dict of fields, or one of the strings NumPy knows.

    Raises DTypeError for what is not served (object, str, datetime, byte-swapped, long double).

    Examples
    --------
    >>> import kernelmill as km, numpy as np
    >>> km.dtype_of(np.float32), km.dtype_of("int8")
    (kernelmill.float32, kernelmill.int8)
    """  # noqa: D205 - the first line needs its continuation
    if isinstance(spec, (DType, StructType)):
        return spec
    owner = getattr(spec, "__kernelmill_struct__", None)
    if isinstance(owner, StructType):
        return owner
    if isinstance(spec, str) and spec in _BY_NAME:
        return _BY_NAME[spec]
    if isinstance(spec, dict):
        return _struct_from_fields("Struct", spec)
    if type(spec).__module__ == "torch" and type(spec).__name__ == "dtype":
        return _scalar_by_name(str(spec).removeprefix("torch."), spec)
    try:
        described: np.dtype[Any] = np.dtype(cast("Any", spec))
    except (TypeError, ValueError):
        raise DTypeError(f"{spec!r} is not a dtype", hint=_SERVED) from None
    return _from_numpy(described)


_SERVED: Final = (
    "served are bool, int8…uint64, float16, bfloat16, float32/64, complex64/128, structs"
)


def _scalar_by_name(name: str, spec: object) -> DType:
    found = _BY_NAME.get(name)
    if found is None:
        raise DTypeError(f"dtype {spec} is not served", hint=_SERVED)
    return found


def _from_numpy(described: np.dtype[Any]) -> DType | StructType:
    if described.fields is not None:
        return _struct_from_numpy("Struct", described)
    if not described.isnative:
        raise DTypeError(
            f"dtype {described.str} has the other byte order",
            hint="convert with `x.astype(x.dtype.newbyteorder('='))`",
        )
    if described.subdtype is not None:
        raise DTypeError(
            f"subarray dtype {described} is not served", hint="use a field for each item"
        )
    return _scalar_by_name(described.name, described)


def _struct_from_numpy(name: str, described: np.dtype[Any]) -> StructType:
    assert described.fields is not None
    assert described.names is not None
    fields = []
    for field_name in described.names:
        inner, offset = described.fields[field_name][:2]
        fields.append(Field(field_name, _from_numpy(inner), offset))
    _check_fields(name, [f.name for f in fields])
    _check_overlap(name, fields, described.itemsize)
    native = c_layout(name, [(f.name, f.type) for f in fields])
    same = native.fields == tuple(fields) and native.itemsize == described.itemsize
    return StructType(
        name, tuple(fields), described.itemsize, native.alignment if same else described.alignment
    )


def _check_overlap(name: str, fields: list[Field], itemsize: int) -> None:
    end = 0
    for field in sorted(fields, key=lambda f: f.offset):
        if field.offset < end:
            raise DTypeError(f"field `{field.name}` of struct {name} overlaps another field")
        end = field.offset + field.type.itemsize
    if end > itemsize:
        raise DTypeError(f"struct {name} has {itemsize} bytes, its fields need {end}")


def _check_fields(name: str, names: list[str]) -> None:
    if not names:
        raise DTypeError(
            f"struct {name} has no fields", hint="declare at least one, as `x: km.float32`"
        )
    for field in names:
        if not field.isidentifier() or field.startswith("__"):
            raise DTypeError(
                f"field {field!r} of struct {name} is not a Python identifier",
                hint="rename the field; operators read it as an attribute",
            )


def _struct_from_fields(name: str, fields: dict[str, Any]) -> StructType:
    _check_fields(name, list(fields))
    return c_layout(name, [(key, dtype_of(value)) for key, value in fields.items()])
