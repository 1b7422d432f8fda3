"""An interpreter of the IR on NumPy scalars: the executable form of docs/reference/operator-language.md.

It knows nothing of C++: only the intrinsics whose bits are defined by our own implementation (exp,
sin, …) are called through `intrinsic_library`. Values are NumPy scalars of the storage type; structs
and tuples are Python tuples. One method a node, one function an operation.
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from intrinsic_library import intrinsic
from kernelmill.compiler import ir
from kernelmill.compiler.kernel_ir import Atomic, Cell, Invoke, Load, Place, Store
from kernelmill.dtypes import DType, StructType, TupleType, Type, WeakType, storage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BF16 = ml_dtypes.bfloat16
NARROW = (np.float16, BF16)
STEP_LIMIT = 1_000_000


class StepLimitError(Exception):
    """The program ran longer than a test may."""


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class _Return(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


def scalar_class(type_: Type) -> type:
    """The NumPy scalar class in which a type is stored."""
    stored = storage(type_)
    assert isinstance(stored, DType)
    return BF16 if stored.name == "bfloat16" else np.dtype(stored.name).type


def kind_of(cls: type) -> str:
    return "f" if cls is BF16 else np.dtype(cls).kind


# ----------------------------------------------------------------------------- integers


def wrap(value: int, cls: type) -> Any:
    """The low bits of a mathematical integer."""
    if cls is np.bool_:
        return np.bool_(value != 0)
    info = np.iinfo(cls)
    bits = info.bits
    value &= (1 << bits) - 1
    if info.min < 0 and value >> (bits - 1):
        value -= 1 << bits
    return cls(value)


def floordiv_int(a: int, b: int) -> int:
    return 0 if b == 0 else a // b


def mod_int(a: int, b: int) -> int:
    return 0 if b == 0 else a % b


def fmod_int(a: int, b: int) -> int:
    return 0 if b == 0 else int(math.copysign(1, a)) * (abs(a) % abs(b))


def pow_int(a: int, b: int, bits: int) -> int:
    return 0 if b < 0 else pow(a, b, 1 << bits)


def lshift_int(a: int, b: int, bits: int) -> int:
    return a << b if 0 <= b < bits else 0


def rshift_int(a: int, b: int, bits: int) -> int:
    if 0 <= b < bits:
        return a >> b
    return -1 if a < 0 else 0


INTEGER: dict[str, Callable[..., int]] = {
    "add": lambda a, b, _: a + b,
    "sub": lambda a, b, _: a - b,
    "mul": lambda a, b, _: a * b,
    "floordiv": lambda a, b, _: floordiv_int(a, b),
    "mod": lambda a, b, _: mod_int(a, b),
    "fmod": lambda a, b, _: fmod_int(a, b),
    "pow": pow_int,
    "neg": lambda a, _: -a,
    "pos": lambda a, _: a,
    "abs": lambda a, _: abs(a),
    "square": lambda a, _: a * a,
    "sign": lambda a, _: (a > 0) - (a < 0),
    "and": lambda a, b, _: a & b,
    "or": lambda a, b, _: a | b,
    "xor": lambda a, b, _: a ^ b,
    "invert": lambda a, _: ~a,
    "lshift": lshift_int,
    "rshift": rshift_int,
    "min": lambda a, b, _: min(a, b),
    "max": lambda a, b, _: max(a, b),
    "minimum": lambda a, b, _: min(a, b),
    "maximum": lambda a, b, _: max(a, b),
    "fmin": lambda a, b, _: min(a, b),
    "fmax": lambda a, b, _: max(a, b),
    "floor": lambda a, _: a,
    "ceil": lambda a, _: a,
    "trunc": lambda a, _: a,
    "real": lambda a, _: a,
    "imag": lambda a, _: 0,
    "conj": lambda a, _: a,
}
# bool is not arithmetic modulo 2: `+` is or, `*` is and, `~` is not.
BOOL: dict[str, Callable[..., bool]] = {
    "add": lambda a, b: a or b,
    "mul": lambda a, b: a and b,
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
    "invert": lambda a: not a,
    "min": lambda a, b: a and b,
    "max": lambda a, b: a or b,
    "minimum": lambda a, b: a and b,
    "maximum": lambda a, b: a or b,
    "fmin": lambda a, b: a and b,
    "fmax": lambda a, b: a or b,
    **dict.fromkeys(("pos", "abs", "floor", "ceil", "trunc", "real", "conj"), lambda a: a),
    "imag": lambda _: False,
}


def bits_pattern(value: Any) -> tuple[int, int]:
    """The two's complement of an integer or bool as an unsigned number, and its width."""
    bits = 8 if isinstance(value, np.bool_) else np.iinfo(type(value)).bits
    return int(value) & ((1 << bits) - 1), bits


def clz(value: Any) -> Any:
    pattern, bits = bits_pattern(value)
    return np.uint8(bits - pattern.bit_length())


def ctz(value: Any) -> Any:
    pattern, bits = bits_pattern(value)
    return np.uint8(bits if pattern == 0 else (pattern & -pattern).bit_length() - 1)


# ----------------------------------------------------------------------------- floats


def float_floordiv(a: Any, b: Any) -> Any:
    if b == 0:
        return a / b
    mod = np.fmod(a, b)
    quotient = (a - mod) / b
    if mod != 0 and (b < 0) != (mod < 0):
        quotient = quotient - 1
    if quotient == 0:
        return np.copysign(type(a)(0), a / b)
    floor = np.floor(quotient)
    return floor + 1 if quotient - floor > type(a)(0.5) else floor


def float_mod(a: Any, b: Any) -> Any:
    mod = np.fmod(a, b)
    if b == 0:
        return mod
    if mod == 0:
        return np.copysign(mod, b)
    return mod + b if (b < 0) != (mod < 0) else mod


def fma(a: Any, b: Any, c: Any) -> Any:
    return intrinsic("fma", a, b, c)


def is_nan(x: Any) -> bool:
    if isinstance(x, np.complexfloating):
        return bool(np.isnan(x.real) or np.isnan(x.imag))
    return bool(x != x)


FLOAT: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "truediv": lambda a, b: a / b,
    "floordiv": float_floordiv,
    "mod": float_mod,
    "fmod": np.fmod,
    "neg": lambda a: -a,
    "pos": lambda a: a,
    "abs": np.abs,
    "fabs": np.abs,
    "square": lambda a: a * a,
    "sign": np.sign,
    "fma": fma,
    "fmin": lambda a, b: a if a <= b or is_nan(b) else b,
    "fmax": lambda a, b: a if a >= b or is_nan(b) else b,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "rint": np.rint,
    "sqrt": np.sqrt,
    "copysign": np.copysign,
    "real": lambda a: a,
    "imag": lambda a: type(a)(0),
    "conj": lambda a: a,
}
# Defined by our own implementation: the bits come from it, its accuracy has tests of its own.
OWN = frozenset(
    "pow exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh "
    "acosh atanh degrees radians rsqrt cbrt hypot erf erfc tgamma lgamma frexp_mantissa".split()
)


# ----------------------------------------------------------------------------- complex


def parts(x: Any) -> tuple[Any, Any]:
    return x.real, x.imag


def make_complex(cls: type, re: Any, im: Any) -> Any:
    """Put two parts together without arithmetic, which would turn inf into NaN."""
    pair = np.array([re, im], np.float32 if cls is np.complex64 else np.float64)
    return pair.view(cls)[0]


def complex_mul(a: Any, b: Any) -> Any:
    (ar, ai), (br, bi) = parts(a), parts(b)
    return make_complex(type(a), ar * br - ai * bi, ar * bi + ai * br)


def complex_div(a: Any, b: Any) -> Any:
    (ar, ai), (br, bi) = parts(a), parts(b)
    one = type(ar)(1)
    if abs(br) >= abs(bi):
        if br == 0 and bi == 0:
            return make_complex(type(a), ar / abs(br), ai / abs(br))
        ratio = bi / br
        scale = one / (br + bi * ratio)
        return make_complex(type(a), (ar + ai * ratio) * scale, (ai - ar * ratio) * scale)
    ratio = br / bi
    scale = one / (bi + br * ratio)
    return make_complex(type(a), (ar * ratio + ai) * scale, (ai * ratio - ar) * scale)


COMPLEX: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: make_complex(type(a), a.real + b.real, a.imag + b.imag),
    "sub": lambda a, b: make_complex(type(a), a.real - b.real, a.imag - b.imag),
    "mul": complex_mul,
    "truediv": complex_div,
    "square": lambda a: complex_mul(a, a),
    "neg": lambda a: make_complex(type(a), -a.real, -a.imag),
    "pos": lambda a: a,
    "abs": lambda a: intrinsic("hypot", a.real, a.imag),
    "real": lambda a: a.real,
    "imag": lambda a: a.imag,
    "conj": lambda a: make_complex(type(a), a.real, -a.imag),
}


# ----------------------------------------------------------------------------- comparison, choice


def less(a: Any, b: Any, *, or_equal: bool) -> bool:
    if isinstance(a, np.complexfloating):
        (ar, ai), (br, bi) = parts(a), parts(b)
        if ar == br:
            return bool(ai <= bi if or_equal else ai < bi)
        return bool(ar < br and not np.isnan(ai) and not np.isnan(bi))
    if isinstance(a, np.integer):
        return int(a) <= int(b) if or_equal else int(a) < int(b)
    return bool(a <= b if or_equal else a < b)


def equal(a: Any, b: Any) -> bool:
    return int(a) == int(b) if isinstance(a, np.integer) else bool(a == b)


COMPARISON: dict[str, Callable[..., bool]] = {
    "lt": lambda a, b: less(a, b, or_equal=False),
    "le": lambda a, b: less(a, b, or_equal=True),
    "gt": lambda a, b: less(b, a, or_equal=False),
    "ge": lambda a, b: less(b, a, or_equal=True),
    "eq": equal,
    "ne": lambda a, b: not equal(a, b),
    "truth": lambda a: bool(a != 0),
    "not": lambda a: not bool(a != 0),
}
CHOICE: dict[str, Callable[..., Any]] = {
    "min": lambda a, b: b if less(b, a, or_equal=False) else a,
    "max": lambda a, b: b if less(a, b, or_equal=False) else a,
    "minimum": lambda a, b: a if less(a, b, or_equal=False) or is_nan(a) else b,
    "maximum": lambda a, b: a if less(b, a, or_equal=False) or is_nan(a) else b,
}
PREDICATE: dict[str, Callable[..., bool]] = {
    "isnan": lambda a: bool(np.isnan(a)),
    "isinf": lambda a: bool(np.isinf(a)),
    "isfinite": lambda a: bool(np.isfinite(a)),
    "signbit": lambda a: bool(np.signbit(a)),
}


# ----------------------------------------------------------------------------- conversion


def float_to_int(value: Any, cls: type) -> Any:
    """Toward zero, with the table's answers for what does not fit."""
    x = float(value)
    bits = np.iinfo(cls).bits
    if cls is np.uint64 and 2.0**63 <= x < 2.0**64:
        return cls(int(x))
    wide = 64 if cls in (np.int64, np.uint64, np.uint32) else 32
    low = -(1 << (wide - 1))
    fits = math.isfinite(x) and low <= math.trunc(x) <= -low - 1
    number = math.trunc(x) if fits else low
    return wrap(number, cls) if bits <= wide else cls(number)


def to_float(value: Any, cls: type) -> Any:
    if cls in NARROW:
        if isinstance(value, np.float64) and cls is np.float16:
            return np.float16(value)
        return cls(to_float(value, np.float32))
    if isinstance(value, (np.integer, np.bool_)):
        return np.asarray(value).astype(cls)[()]
    return cls(value)


def convert(value: Any, type_: Type) -> Any:
    """The table of conversions."""
    cls, found = scalar_class(type_), kind_of(type(value))
    wanted = kind_of(cls)
    if wanted == "b":
        return np.bool_(value != 0)
    if wanted in "iu":
        if found in "iub":
            return wrap(int(value), cls)
        return float_to_int(value, cls)
    if wanted == "f":
        return to_float(value, cls)
    real = np.float32 if cls is np.complex64 else np.float64
    re, im = parts(value) if found == "c" else (value, real(0))
    return make_complex(cls, to_float(re, real), to_float(im, real))


# ----------------------------------------------------------------------------- operations


def _widened(op: str, args: tuple[Any, ...]) -> Any:
    """float16 and bfloat16: compute in float32, round once."""
    result = apply(op, tuple(np.float32(a) if type(a) in NARROW else a for a in args))
    return type(args[0])(result) if isinstance(result, np.float32) else result


def _ldexp(value: Any, exponent: Any) -> Any:
    clamped = min(max(int(exponent), -(2**31)), 2**31 - 1)
    return np.ldexp(value, np.int32(min(max(clamped, -5000), 5000)))


def _frexp_exponent(value: Any) -> Any:
    if value == 0 or not np.isfinite(value):
        return np.int32(0)
    return np.int32(math.frexp(float(value))[1])


SPECIAL: dict[str, Callable[..., Any]] = {
    "popcount": lambda a: np.uint8(bits_pattern(a)[0].bit_count()),
    "clz": clz,
    "ctz": ctz,
    "int": lambda a: (
        wrap(int(a), np.int64) if kind_of(type(a)) in "iub" else float_to_int(a, np.int64)
    ),
    "round": lambda a: (
        wrap(int(a), np.int64)
        if kind_of(type(a)) in "iub"
        else float_to_int(np.rint(np.float64(a)), np.int64)
    ),
    "ldexp": _ldexp,
    "frexp_exponent": _frexp_exponent,
}


def apply(op: str, args: tuple[Any, ...]) -> Any:
    """One operation on scalars of the types its rule asks for."""
    first = args[0]
    kind = kind_of(type(first))
    if op in COMPARISON:
        return np.bool_(COMPARISON[op](*args))
    if op in ("popcount", "clz", "ctz", "int", "round", "frexp_exponent"):
        return SPECIAL[op](*args)
    if type(first) in NARROW:
        return _widened(op, args)
    if op in PREDICATE:
        return np.bool_(PREDICATE[op](first))
    if op == "ldexp":
        return _ldexp(*args)
    if kind in "iu":
        bits = np.iinfo(type(first)).bits
        return wrap(INTEGER[op](*(int(a) for a in args), bits), type(first))
    if kind == "b":
        return np.bool_(BOOL[op](*(bool(a) for a in args)))
    if op in CHOICE:
        return CHOICE[op](*args)
    if kind == "c":
        return COMPLEX[op](*args)
    return intrinsic(op, *args) if op in OWN else FLOAT[op](*args)


# ----------------------------------------------------------------------------- captured arrays

# What an atomic operation leaves where `old` was.
ATOMIC: dict[str, Callable[..., Any]] = {
    "add": lambda old, v: apply("add", (old, v)),
    "sub": lambda old, v: apply("add", (old, v)),
    "min": lambda old, v: min(old, v),
    "max": lambda old, v: max(old, v),
    "and_": lambda old, v: old & v,
    "or_": lambda old, v: old | v,
    "xor": lambda old, v: old ^ v,
    "exch": lambda old, v: v,
    "cas": lambda old, expected, v: v if same_bits(old, expected) else old,
    "store": lambda old, v: v,
}


def numpy_dtype(type_: DType | StructType) -> np.dtype[Any]:
    return np.dtype(BF16) if type_.name == "bfloat16" else type_.to_numpy()


def captured(translation: Any) -> list[Any]:
    """The values of what an operator captured: of an array, its address."""
    return [
        c.read() if c.array is None else c.read().__array_interface__["data"][0]
        for c in translation.captures
    ]


# ----------------------------------------------------------------------------- the interpreter


class _Frame:
    """One call of one function."""

    def __init__(self, machine: _Machine, function: ir.Function, args: Sequence[Any]) -> None:
        self.machine, self.function, self.args = machine, function, args
        self.locals: dict[str, Any] = {}

    def run(self) -> Any:
        try:
            self.block(self.function.body)
        except _Return as result:
            return result.value
        raise AssertionError("control reached the end")

    def block(self, statements: tuple[ir.Stmt, ...]) -> None:
        for statement in statements:
            self.machine.tick()
            getattr(self, f"do_{type(statement).__name__}")(statement)

    def do_Assign(self, s: ir.Assign) -> None:
        self.locals[s.name] = self.value(s.value)

    def do_If(self, s: ir.If) -> None:
        self.block(s.then if self.value(s.condition) else s.orelse)

    def do_For(self, s: ir.For) -> None:
        start, stop, step = (int(self.value(b)) for b in (s.start, s.stop, s.step))
        for i in range(start, stop, step) if step else ():
            self.locals[s.name] = np.int64(i)
            try:
                self.block(s.body)
            except _Break:
                return
            except _Continue:
                pass

    def do_While(self, s: ir.While) -> None:
        while self.value(s.condition):
            self.machine.tick()
            try:
                self.block(s.body)
            except _Break:
                return
            except _Continue:
                pass

    def do_Break(self, s: ir.Break) -> None:
        raise _Break

    def do_Continue(self, s: ir.Continue) -> None:
        raise _Continue

    def do_Return(self, s: ir.Return) -> None:
        raise _Return(self.value(s.value))

    def do_Load(self, s: Load) -> None:
        self.locals[s.name] = self.element(s.place)

    def do_Store(self, s: Store) -> None:
        value = self.value(s.value)
        where = self.memory(s.place)
        if where is not None:
            where[...] = value

    def do_Atomic(self, s: Atomic) -> None:
        old = self.element(s.place)
        values = [self.value(v) for v in s.values]
        where = self.memory(s.place)
        if where is not None and s.op != "load":
            where[...] = ATOMIC[s.op](old, *values)
        if s.name is not None:
            self.locals[s.name] = old

    def do_Invoke(self, s: Invoke) -> None:
        made = self.of_Call(s.call)
        if s.name is not None:
            self.locals[s.name] = made

    def memory(self, place: Place) -> Any:
        """The element as an array of no dimension over its memory; None outside the array."""
        assert isinstance(place, Cell)
        base, distance, within = (self.value(i) for i in place.index)
        if not within:
            return None
        bytes_ = (ctypes.c_char * place.type.itemsize).from_address(int(base) + int(distance))
        return np.frombuffer(bytes_, numpy_dtype(place.type)).reshape(())

    def element(self, place: Place) -> Any:
        where = self.memory(place)
        held = np.zeros((), numpy_dtype(place.type)) if where is None else where
        return stored(held[()], place.type)

    def value(self, node: ir.Expr) -> Any:
        return getattr(self, f"of_{type(node).__name__}")(node)

    def of_Const(self, n: ir.Const) -> Any:
        cls = scalar_class(n.type)
        if kind_of(cls) in "iu":
            return wrap(int(n.value), cls)
        return cls(n.value)

    def of_Param(self, n: ir.Param) -> Any:
        return self.args[n.index]

    def of_Capture(self, n: ir.Capture) -> Any:
        return self.machine.captures[n.index]

    def of_Local(self, n: ir.Local) -> Any:
        return self.locals[n.name]

    def of_Apply(self, n: ir.Apply) -> Any:
        return apply(n.op, tuple(self.value(a) for a in n.args))

    def of_Cast(self, n: ir.Cast) -> Any:
        return convert(self.value(n.value), n.type)

    def of_Select(self, n: ir.Select) -> Any:
        return self.value(n.then if self.value(n.condition) else n.orelse)

    def of_GetField(self, n: ir.GetField) -> Any:
        owner = n.value.type
        assert isinstance(owner, StructType)
        names = [f.name for f in owner.fields]
        return self.value(n.value)[names.index(n.name)]

    def of_MakeStruct(self, n: ir.MakeStruct) -> Any:
        return tuple(self.value(v) for v in n.values)

    of_MakeTuple = of_MakeStruct

    def of_GetItem(self, n: ir.GetItem) -> Any:
        return self.value(n.value)[n.index]

    def of_Call(self, n: ir.Call) -> Any:
        return self.machine.call(n.function, [self.value(a) for a in n.args])


class _Machine:
    def __init__(self, program: ir.Program, captures: Sequence[Any]) -> None:
        self.functions = {f.name: f for f in program.functions}
        self.captures = captures
        self.steps = 0

    def tick(self) -> None:
        self.steps += 1
        if self.steps > STEP_LIMIT:
            raise StepLimitError

    def call(self, name: str, args: Sequence[Any]) -> Any:
        return _Frame(self, self.functions[name], args).run()


def stored(value: Any, type_: Type) -> Any:
    """A Python or NumPy value as the scalar, or tuple of scalars, that the interpreter works on."""
    if isinstance(type_, TupleType):
        return tuple(stored(v, t) for v, t in zip(value, type_.items, strict=True))
    if isinstance(type_, StructType):
        items = (value[f.name] for f in type_.fields) if isinstance(value, np.void) else value
        return tuple(stored(v, f.type) for v, f in zip(items, type_.fields, strict=True))
    assert isinstance(type_, (DType, WeakType))
    cls = scalar_class(type_)
    return wrap(int(value), cls) if kind_of(cls) in "iu" else cls(value)


def run(program: ir.Program, args: Sequence[Any], captures: Sequence[Any] = ()) -> Any:
    """Run the entry function on one element each; returns a scalar, or a tuple of them."""
    given = [stored(a, t) for a, (_, t) in zip(args, program.entry.params, strict=True)]
    taken = [stored(c, t) for c, (_, t) in zip(captures, program.captures, strict=True)]
    with np.errstate(all="ignore"):
        return _Machine(program, taken).call(program.entry.name, given)


def same_bits(a: Any, b: Any) -> bool:
    """Equal to the bit, with all NaNs equal; tuples item by item."""
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same_bits, a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, np.complexfloating):
        return same_bits(a.real, b.real) and same_bits(a.imag, b.imag)
    if kind_of(type(a)) == "f" and is_nan(a):
        return is_nan(b)
    return a.tobytes() == b.tobytes()
