"""A driver and libraries of arrays that are none, for the tests of the CUDA launcher."""

import ctypes
from ctypes import c_char, c_int, c_int32, c_int64, c_uint, c_uint8, c_uint16, c_uint32, c_void_p
from typing import ClassVar

RECORD = 256
CONTEXT, ELSEWHERE = 0xC0, 0xE0
ANY, ALIKE, FIXED = range(3)


class Config(ctypes.Structure):
    _fields_ = (
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("stream", c_void_p),
        ("attributes", c_void_p),
        ("n_attributes", c_uint),
    )


LAUNCH = ctypes.CFUNCTYPE(
    c_int, ctypes.POINTER(Config), c_void_p, ctypes.POINTER(c_void_p), c_void_p
)
GET = ctypes.CFUNCTYPE(c_int, ctypes.POINTER(c_void_p))
SET = ctypes.CFUNCTYPE(c_int, c_void_p)
CAPTURING = ctypes.CFUNCTYPE(c_int, c_void_p, ctypes.POINTER(c_int))


class Driver:
    """Writes down what it was asked to launch; `record` is the size of a launch's record."""

    kept: ClassVar = []

    def __init__(self, record=RECORD, parameters=1):
        self.calls, self.contexts, self.status = [], [], 0
        self.current, self.capturing = CONTEXT, 0
        self._size, self._parameters = record, parameters
        functions = (
            LAUNCH(self._launch), GET(self._get), SET(self._set), CAPTURING(self._is_capturing)
        )  # fmt: skip
        self.kept.append(functions)
        self.addresses = tuple(ctypes.cast(f, c_void_p).value for f in functions)

    def _launch(self, config, function, parameters, extra):
        c = config.contents
        base = parameters[0] if self._parameters else 0
        self.calls.append(
            {
                "function": function,
                "grid": tuple(c.grid),
                "block": tuple(c.block),
                "shared": c.shared,
                "stream": c.stream or 0,
                "attributes": ctypes.string_at(c.attributes, 72 * c.n_attributes)
                if c.n_attributes
                else b"",
                "record": ctypes.string_at(base, self._size) if base else b"",
                "offsets": tuple(parameters[i] - base for i in range(self._parameters)),
                "aligned": base % 16 == 0,
                "extra": extra,
                "context": self.current,
            }
        )
        return self.status

    def _is_capturing(self, stream, to):
        to[0] = self.capturing
        return 0

    def _get(self, to):
        to[0] = self.current
        return 0

    def _set(self, context):
        self.current = context or 0
        self.contexts.append(self.current)
        return 0


class Tensor(ctypes.Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", ctypes.POINTER(c_int64)),
        ("strides", ctypes.POINTER(c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Exchange(ctypes.Structure):
    pass


TO_TENSOR = ctypes.PYFUNCTYPE(c_int, ctypes.py_object, ctypes.POINTER(Tensor))
STREAM = ctypes.PYFUNCTYPE(c_int, c_int32, c_int32, ctypes.POINTER(c_void_p))
Exchange._fields_ = (
    ("major", c_uint32),
    ("minor", c_uint32),
    ("previous", ctypes.POINTER(Exchange)),
    ("allocate", c_void_p),
    ("to_managed", c_void_p),
    ("from_managed", c_void_p),
    ("to_tensor", TO_TENSOR),
    ("current_stream", STREAM),
)


def c_order(shape):
    steps, step = [], 1
    for extent in reversed(shape):
        steps.append(step)
        step *= extent
    return tuple(reversed(steps))


class FakeTensor:
    """A tensor as torch has it: strides in elements."""

    stream = 0
    broken = False

    def __init__(self, data, shape, strides=None, *, dtype=(2, 32), **more):
        self.data, self.shape = data, tuple(shape)
        self.strides = c_order(shape) if strides is None else strides
        self.code, self.bits = dtype
        self.device_type, self.device_id, self.offset = 2, 0, 0
        self.requires_grad = self.negative = self.conjugate = False
        for name, value in more.items():
            setattr(self, name, value)
        self._shape = (c_int64 * max(1, len(self.shape)))(*self.shape)
        self._strides = (c_int64 * max(1, len(self.shape)))(*(self.strides or ()))

    def is_negative(self):
        return self.negative

    def is_conjugate(self):
        return self.conjugate


class OldTensor(FakeTensor):
    """A tensor of a torch without the table: methods tell of it."""

    stream = 0

    @property
    def dtype(self):
        return ("dtype", self.code, self.bits)

    def data_ptr(self):
        if self.broken:
            raise RuntimeError("no memory")
        return self.data + self.offset

    def stride(self):
        return tuple(self.strides)

    def get_device(self):
        return self.device_id if self.device_type == 2 else -1


class OtherTensor(FakeTensor):
    """A library with the table and no more: strides may be absent."""

    stream = 0


def _fill(obj, to):
    if obj.broken:
        return -1
    t = to.contents
    t.data, t.device_type, t.device_id = obj.data, obj.device_type, obj.device_id
    t.ndim, t.code, t.bits, t.lanes = len(obj.shape), obj.code, obj.bits, 1
    t.shape = obj._shape
    t.strides = obj._strides if obj.strides is not None else None
    t.byte_offset = obj.offset
    return 0


def table(cls, major=1, previous=None):
    def current(device_type, device, to):
        assert device_type == 2
        to[0] = cls.stream
        return 0 if cls.stream is not None else -1

    made = Exchange(major, 3)
    made.to_tensor, made.current_stream = TO_TENSOR(_fill), STREAM(current)
    if previous is not None:
        made.previous = ctypes.pointer(previous)
    Driver.kept.append(made)
    return made


class FakeCupy:
    """An array as CuPy has it: strides in bytes, the pointer in an object of its own."""

    stream = 0

    class Memory:
        def __init__(self, ptr, device_id):
            self.ptr, self.device_id = ptr, device_id

    def __init__(self, data, shape, dtype, strides=None, device=0):
        self.data, self.shape, self.dtype = self.Memory(data, device), tuple(shape), dtype
        item = dtype.itemsize
        self.strides = tuple(s * item for s in c_order(shape)) if strides is None else strides


class FakeOwn:
    """An array of our own: all that counts is in `_record`."""

    stream = 0

    def __init__(self, data, shape, dtype=(2, 32), *, stream=0, device=0, element=None):
        self._record = b"".join(
            (
                data.to_bytes(8, "little"),
                stream.to_bytes(8, "little"),
                *(n.to_bytes(4, "little") for n in (device, *dtype, len(shape))),
                *(n.to_bytes(8, "little") for n in shape),
            )
        )
        self.dtype = element


def register(module):
    """Make the libraries known to a module; returns what forgets them."""
    module.cuda_library(
        FakeTensor,
        "torch",
        api=ctypes.addressof(table(FakeTensor)),
        is_negative=FakeTensor.is_negative,
        is_conjugate=FakeTensor.is_conjugate,
    )
    module.cuda_library(OtherTensor, "exchange", api=ctypes.addressof(table(OtherTensor)))
    module.cuda_library(
        OldTensor,
        "methods",
        stream=lambda _: OldTensor.stream,
        is_negative=OldTensor.is_negative,
        is_conjugate=OldTensor.is_conjugate,
        codes={("dtype", c, b): 256 * c + b for c, b in ((2, 32), (2, 64), (0, 32), (5, 64))},
        methods=(OldTensor.data_ptr, OldTensor.stride, OldTensor.get_device),
    )
    module.cuda_library(FakeCupy, "cupy", stream=lambda _: FakeCupy.stream)
    module.cuda_library(FakeOwn, "own", stream=lambda _: FakeOwn.stream)

    def forget():
        for cls in (FakeTensor, OldTensor, OtherTensor, FakeCupy, FakeOwn):
            module.cuda_library(cls, "none")
            cls.stream = 0

    return forget


class Bytes(ctypes.Structure):
    """A struct of ctypes, as a kernel argument."""

    _fields_ = (("value", c_char * 12),)
