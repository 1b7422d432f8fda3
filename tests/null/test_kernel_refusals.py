"""What kernels refuse: the whole text of each error, with the line and its caret."""

from __future__ import annotations

import linecache

import numpy as np
import pytest

import kernelmill as km
from kernelmill.errors import ArgumentError, OperatorError

X, XX = "float32[:]", "float32[:, :]"


@km.struct
class P:
    x: km.float32
    n: km.int32


NAMES = {"km": km, "np": np, "P": P, "TABLE": np.arange(3.0), "LIST": [1]}


def define(text):
    linecache.cache["<cell>"] = (len(text), None, text.splitlines(keepends=True), "<cell>")
    space = {**NAMES, "__builtins__": __builtins__}
    exec(compile(text, "<cell>", "exec", dont_inherit=True), space)
    return km.kernel(space["k"])


CASES = [
    (
        (XX,),
        """\
def k(x):
    for i in km.grid_range(len(x)):
        x[i] = 1
""",
        """\
`x` has 2 dimensions, got 1 index
  File "<cell>", line 3
            x[i] = 1
            ^^^^

hint: write `x[i, j]` for an element, `x[i, :]` for a part
""",
    ),
    (
        ("complex64[:]",),
        """\
def k(z):
    z[0].real += 1
""",
        """\
`.real` of a number cannot be assigned alone
  File "<cell>", line 2
        z[0].real += 1
        ^^^^^^^^^

hint: assign the whole number: `z[i] = re + 1j * z[i].imag`
""",
    ),
    (
        (X,),
        """\
def k(x):
    x[0, 1] = 1
""",
        """\
`x` has 1 dimension, got 2 indices
  File "<cell>", line 2
        x[0, 1] = 1
        ^^^^^^^

hint: write `x[i]`
""",
    ),
    (
        (X,),
        """\
def k(x):
    x[0.5] = 1
""",
        """\
an index is an integer, got weak float
  File "<cell>", line 2
        x[0.5] = 1
          ^^^

hint: write int(i) to drop the fraction
""",
    ),
    (
        (X,),
        """\
def k(x):
    x[0] = x
""",
        """\
`x` is an array: a kernel computes with its elements
  File "<cell>", line 2
        x[0] = x
        ^^^^

hint: write `x[i]`
""",
    ),
    (
        (X,),
        """\
def k(x):
    y = x + 1
""",
        """\
`x` is an array: a kernel computes with its elements
  File "<cell>", line 2
        y = x + 1
            ^

hint: write `x[i]`
""",
    ),
    (
        (X,),
        """\
def k(x):
    return x[0]
""",
        """\
a kernel returns no value
  File "<cell>", line 2
        return x[0]
        ^^^^^^^^^^^

hint: write it to an element of an array that is passed: `out[i] = value`
""",
    ),
    (
        (X,),
        """\
def k(x):
    x[:] = 0
""",
        """\
a part of an array cannot be assigned as a whole
  File "<cell>", line 2
        x[:] = 0
        ^^^^

hint: write a loop over its elements: `for k in km.block_range(n): tile[k] = v`
""",
    ),
    (
        (X,),
        """\
def k(x):
    y = x[::2]
""",
        """\
a slice has no step here
  File "<cell>", line 2
        y = x[::2]
                ^

hint: take `start:stop`, and multiply the index
""",
    ),
    (
        (X,),
        """\
def k(x):
    y = x.T
""",
        """\
an array of a kernel has no attribute `T`
  File "<cell>", line 2
        y = x.T
            ^^^

hint: exchange the indices: `x[j, i]`
""",
    ),
    (
        (X, 3),
        """\
def k(x, n):
    t = km.shared(n, km.float32)
""",
        """\
the shape of `km.shared` is known only when the kernel runs
  File "<cell>", line 2
        t = km.shared(n, km.float32)
            ^^^^^^^^^^^^^^^^^^^^^^^^

hint: use literals, captured integers or arguments annotated `km.static`; km.dynamic_shared takes any shape
""",
    ),
    (
        (X,),
        """\
def k(x):
    t = km.shared((0, 2), km.float32)
""",
        """\
the shape of `km.shared` is (0, 2): extents are 1 or more
  File "<cell>", line 2
        t = km.shared((0, 2), km.float32)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
""",
    ),
    (
        (X,),
        """\
def k(x):
    t = km.shared(4, 'no')
""",
        """\
`km.shared`: 'no' is not a dtype
  File "<cell>", line 2
        t = km.shared(4, 'no')
            ^^^^^^^^^^^^^^^^^^

hint: served are bool, int8…uint64, float16, bfloat16, float32/64, complex64/128, structs
""",
    ),
    (
        (X,),
        """\
def k(x):
    t = km.shared(20000, km.float32)
""",
        """\
the kernel asks for 80000 bytes of static shared memory (`t` 80000); the limit is 49152
  File "<cell>", line 2
        t = km.shared(20000, km.float32)
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^

hint: use smaller tiles, or km.dynamic_shared and `kernel[grid, block, stream, bytes]`
""",
    ),
    (
        (X,),
        """\
def k(x):
    t = km.shared((4, 4), km.float32)
    t[4, 0] = 1
""",
        """\
index 4 is out of range: dimension 0 of `t` has 4 elements
  File "<cell>", line 3
        t[4, 0] = 1
          ^

hint: indices run from 0 to 3; a negative literal counts from the end
""",
    ),
    (
        (X,),
        """\
def k(x):
    TABLE[0] = 1
""",
        """\
`TABLE` is a constant array
  File "<cell>", line 2
        TABLE[0] = 1
        ^^^^^^^^

hint: write to another array, passed as an argument
""",
    ),
    (
        (X,),
        """\
def k(x):
    for i in km.grid_range(9):
        km.barrier()
""",
        """\
`km.barrier` waits for all threads of a block, and only some of them come here: this loop depends on the index of the thread
  File "<cell>", line 3
            km.barrier()
            ^^^^^^^^^^^^

hint: put it in a `km.tile_range`, or in a `km.block_range` over fixed extents that the threads of a block divide
""",
    ),
    (
        (X,),
        """\
def k(x):
    if km.threadIdx.x < 5:
        km.barrier()
""",
        """\
`km.barrier` waits for all threads of a block, and only some of them come here: this branch depends on the index of the thread
  File "<cell>", line 3
            km.barrier()
            ^^^^^^^^^^^^

hint: put it outside the branch, so that every thread comes to it
""",
    ),
    (
        (X,),
        """\
def k(x):
    for i in km.block_range(100):
        x[i] = km.block.reduce(x[i])
""",
        """\
`km.block.reduce` waits for all threads of a block, and only some of them come here: this loop depends on the index of the thread
  File "<cell>", line 3
            x[i] = km.block.reduce(x[i])
            ^^^^^^^^^^^^^^^^^^^^^^^^^^^^

hint: put it in a `km.tile_range`, or in a `km.block_range` over fixed extents that the threads of a block divide
""",
    ),
    (
        (X,),
        """\
def k(x):
    for i, j in km.grid_range(3, 4):
        break
""",
        """\
`break` cannot leave a loop over several indices
  File "<cell>", line 3
            break
            ^^^^^

hint: use `continue`, or a loop over one index
""",
    ),
    (
        (X,),
        """\
def k(x):
    for i in km.grid_range(1.5):
        pass
""",
        """\
`km.grid_range` takes integers, got weak float
  File "<cell>", line 2
        for i in km.grid_range(1.5):
                               ^^^

hint: write int(x) to drop the fraction
""",
    ),
    (
        (X,),
        """\
def k(x):
    for i in km.grid_range(len(x), step=2):
        pass
""",
        """\
`km.grid_range` takes no argument `step`
  File "<cell>", line 2
        for i in km.grid_range(len(x), step=2):
                                            ^

hint: `unroll=` is the only one
""",
    ),
    (
        (X,),
        """\
def k(x):
    for i in km.static_range(len(x)):
        pass
""",
        """\
the bounds of `km.static_range` are known only when the kernel runs
  File "<cell>", line 2
        for i in km.static_range(len(x)):
                 ^^^^^^^^^^^^^^^^^^^^^^^

hint: use literals, captured integers or arguments annotated `km.static`; or `range`
""",
    ),
    (
        (X,),
        """\
def k(x):
    for a, b in km.grid_range(3):
        pass
""",
        """\
weak int cannot be unpacked
  File "<cell>", line 2
        for a, b in km.grid_range(3):
            ^^^^

hint: only tuples and structs are unpacked
""",
    ),
    (
        (X,),
        """\
def k(x):
    km.atomic.add(x, 0)
""",
        """\
`km.atomic.add` takes (array, index, value, order=, scope=), got 2 arguments
  File "<cell>", line 2
        km.atomic.add(x, 0)
        ^^^^^^^^^^^^^^^^^^^

hint: write `km.atomic.add(array, index, value)`
""",
    ),
    (
        (X,),
        """\
def k(x):
    km.atomic.add(x, 0, 1, order='strong')
""",
        """\
order='strong' does not exist
  File "<cell>", line 2
        km.atomic.add(x, 0, 1, order='strong')
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

hint: choose one of 'relaxed', 'acquire', 'release', 'acquire_release', 'sequential'
""",
    ),
    (
        (X,),
        """\
def k(x):
    km.atomic.and_(x, 0, 1)
""",
        """\
`km.atomic.and_` is not defined for float32
  File "<cell>", line 2
        km.atomic.and_(x, 0, 1)
        ^^^^^^^^^^^^^^^^^^^^^^^

hint: it takes arrays of bool, int, uint
""",
    ),
    (
        (X,),
        """\
def k(x):
    km.atomic.add(x, (0, 1), 1)
""",
        """\
`x` has 1 dimension, got 2 indices
  File "<cell>", line 2
        km.atomic.add(x, (0, 1), 1)
        ^^^^^^^^^^^^^^^^^^^^^^^^^^^

hint: pass one index, or a tuple of one index a dimension
""",
    ),
    (
        (X,),
        """\
def k(x):
    km.warp.nothing()
""",
        """\
`km.warp` has no attribute `nothing`
  File "<cell>", line 2
        km.warp.nothing()
        ^^^^^^^^^^^^^^^

hint: an operator reads plain attributes of modules, classes and objects
""",
    ),
    (
        (X,),
        """\
def k(x):
    km.barier()
""",
        """\
module `km` has no attribute `barier` (did you mean `barrier`?)
  File "<cell>", line 2
        km.barier()
        ^^^^^^^^^

hint: an operator reads plain attributes of modules, classes and objects
""",
    ),
    (
        (X,),
        """\
def k(x):
    x[0] = km.block.reduce(x[0], x)
""",
        """\
the operator of a reduction is a function of two values
  File "<cell>", line 2
        x[0] = km.block.reduce(x[0], x)
               ^^^^^^^^^^^^^^^^^^^^^^^^

hint: pass km.add, km.maximum, a lambda or a def function
""",
    ),
    (
        (X,),
        """\
def k(x):
    y = x[0]
    x[0] = km.block.reduce(y, lambda a, b: a + b + y)
""",
        """\
the operator of a reduction uses variables or memory of the kernel
  File "<cell>", line 3
        x[0] = km.block.reduce(y, lambda a, b: a + b + y)
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

hint: let it compute from its two arguments alone
""",
    ),
    (
        (X,),
        """\
def k(x):
    x[0] = km.threadIdx.w
""",
        """\
`km.threadIdx` has no attribute `w`
  File "<cell>", line 2
        x[0] = km.threadIdx.w
               ^^^^^^^^^^^^^^

hint: its attributes are x, y and z
""",
    ),
    (
        (X,),
        """\
def k(x):
    p = P(1, 2)
    p.x = 3
""",
        """\
a kernel changes elements of arrays, not structs and tuples of its own
  File "<cell>", line 3
        p.x = 3
        ^^^

hint: build a new value, `p = P(x=1, y=p.y)`
""",
    ),
    (
        (X, X, True),
        """\
def k(x, y, c):
    z = x if c else y
    z[0] = 1
""",
        """\
`x` is an array: a kernel computes with its elements
  File "<cell>", line 2
        z = x if c else y
            ^

hint: write `x[i]`
""",
    ),
    (
        (X, X, True),
        """\
def k(x, y, c):
    if c:
        z = x
    else:
        z = y
    z[0] = 1
""",
        """\
`z` is an array (line 3) or an array (line 5): which one is known only at run time
  File "<cell>", line 6
        z[0] = 1
        ^

hint: index both, and choose between their elements
""",
    ),
    (
        (X,),
        """\
def k(x):
    print(f'{x[0]:.3f}')
""",
        """\
a format is not part of kernels' printing
  File "<cell>", line 2
        print(f'{x[0]:.3f}')
              ^^^^^^^^^^^^^

hint: write `{x}` alone
""",
    ),
    (
        (X,),
        """\
def k(x):
    assert x[0] > 0, x[0]
""",
        """\
the message of an `assert` is a text
  File "<cell>", line 2
        assert x[0] > 0, x[0]
                         ^^^^

hint: write `assert c, "why"`
""",
    ),
    (
        (X,),
        """\
def k(x):
    try:
        x[0] = 1
    finally:
        pass
""",
        """\
`try` is not part of the operator language
  File "<cell>", line 2
        try:
        ^^^^

hint: test the operands before: no operation raises in an operator
""",
    ),
    (
        (X,),
        """\
def k(x):
    def f(i):
        x[i] = 1
    x[0] = f(3)
""",
        """\
`f(...)` is None: an operator cannot compute with it
  File "<cell>", line 4
        x[0] = f(3)
        ^^^^

hint: use a number as the marker, such as math.nan or -1
""",
    ),
    (
        (X,),
        """\
def k(x):
    x[0] = P(1, 2)
""",
        """\
`x` holds float32, got P
  File "<cell>", line 2
        x[0] = P(1, 2)
        ^^^^

hint: assign a value of the struct, or one field: `p[i].x = ...`
""",
    ),
    (
        (X,),
        """\
def k(x):
    x[300] = LIST[0]
""",
        """\
`LIST` is a list, which can change: an operator cannot compute with it
  File "<cell>", line 2
        x[300] = LIST[0]
                 ^^^^

hint: make it a tuple
""",
    ),
    (
        (X,),
        """\
def k(x):
    if True:
        for i in range(2):
            t = km.dynamic_shared(4, km.float32)
""",
        """\
`km.dynamic_shared` stands inside a loop, a branch or another function
  File "<cell>", line 4
                t = km.dynamic_shared(4, km.float32)
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^

hint: make the array at the top of the kernel
""",
    ),
    (
        (X,),
        """\
def k(x):
    x[0] = 1j
""",
        """\
weak complex cannot be converted to float32
  File "<cell>", line 2
        x[0] = 1j
        ^^^^

hint: write `x.real`, `x.imag` or abs(x)
""",
    ),
    (
        (X,),
        """\
def k(x):
    x[0] = undefined
""",
        """\
name `undefined` is not defined
  File "<cell>", line 2
        x[0] = undefined
               ^^^^^^^^^

hint: define it before the operator is used
""",
    ),
]


@pytest.mark.parametrize(
    ("args", "text", "refusal"), CASES, ids=[t.splitlines()[-1] for _, t, _ in CASES]
)
def test_a_refusal_shows_the_line_and_what_to_write(args, text, refusal):
    with pytest.raises(OperatorError) as caught:
        define(text).specialize(*args)
    assert str(caught.value) == refusal.rstrip("\n")


def test_blocks_that_reduce_are_whole_warps():
    kernel = define("def k(x):\n    x[0] = km.block.reduce(x[0])\n")
    kernel.specialize(X, block=64)
    with pytest.raises(OperatorError) as caught:
        kernel.specialize(X, block=(10, 10))
    assert caught.value.message == "`km.block.reduce` needs whole warps; the block has 100 threads"
    assert caught.value.hint == "launch blocks of a multiple of 32 threads"


@pytest.mark.parametrize(
    ("lines", "message", "hint"),
    [
        ("i = km.grid_range(len(x))", "`km.grid_range` is a loop over indices, not a value",
         "write `for i in km.grid_range(...):` and the work in it"),
        ("for i in km.grid_range(x.shape): pass",
         "`km.grid_range` takes integers one by one, got 2 in a tuple",
         "write `km.grid_range(*x.shape)`"),
        ("for i in km.grid_range(*x.shape): x[i, 0] = 1",
         "an index is an integer, got 2 of them in a tuple",
         "name them, `i, j = ...` or `for i, j in ...`, and write `x[i, j]`"),
        ("x[km.threadIdx, 0] = 1", "`km.threadIdx` is three indices or sizes",
         "choose one of `.x`, `.y`, `.z`"),
        ("if x.dtype == np.float32: pass", "`float32` is a dtype",
         "convert with it, `x.dtype(v)`; choose by a number that is captured"),
        ("x[..., 0] = 1", "`Ellipsis` is an ellipsis",
         "index each dimension: `x[i, j]`, or `x[i, :]` for a part"),
        ("t = np.zeros(4)", "`np.zeros` (builtin_function_or_method) is not a function",
         "write `km.local(shape, dtype)` or `km.shared(shape, dtype)`, and fill it in a loop"),
        ("x[0, 0] = km.warp.shuffle(x[0, 0])",
         "`km.warp.shuffle` takes (value, count), got 1 argument",
         "write `km.warp.shuffle(value, count)`"),
        ("km.shared((2, 2), km.int32).flat[0] = 1", "`shared` is no array that is passed with",
         "index each dimension"),
        ("x[0, 0] = z + 1", "`z` is an array: a kernel computes with its elements",
         "write `z[()]`"),
    ],
)  # fmt: skip
def test_what_people_write_first_gets_a_hint(lines, message, hint):
    with pytest.raises(OperatorError) as caught:
        define(f"def k(x, z):\n    {lines}\n").specialize(XX, np.zeros((), np.float32))
    assert str(caught.value).startswith(message)
    assert str(caught.value).endswith(f"\n\nhint: {hint}")


@pytest.mark.parametrize("name", ["barrier", "fence", "grid_range", "shared", "static_range"])
def test_functions_of_kernels_are_called_in_kernels_only(name):
    with pytest.raises(OperatorError) as caught:
        getattr(km, name)() if name in ("barrier", "fence") else getattr(km, name)(
            *([4] * (2 if name == "shared" else 1))
        )
    assert caught.value.message == f"`km.{name}` exists only inside a kernel"
    assert caught.value.hint == "call it in a function that is decorated with @km.kernel"


def test_indices_of_threads_are_known_in_kernels_only():
    with pytest.raises(OperatorError, match="`km.blockIdx.y` exists only inside a kernel"):
        km.blockIdx.y
    with pytest.raises(AttributeError, match="km.blockIdx has no attribute 'w'"):
        km.blockIdx.w
    assert repr(km.blockIdx) == "kernelmill.blockIdx"


def operator_barrier(v):
    km.barrier()
    return v


def operator_loop(v):
    for _ in km.grid_range(3):
        v = v + 1
    return v


@pytest.mark.parametrize(
    ("operator", "named"),
    [
        (operator_barrier, "`km.barrier`"),
        (operator_loop, "`km.grid_range`"),
        (lambda v: v + km.threadIdx.x, "`km.threadIdx.x`"),
        (lambda v: km.block.reduce(v), "`km.block.reduce`"),
    ],
)
def test_operators_do_not_know_threads(operator, named):
    with pytest.raises(OperatorError) as caught:
        km.transform(np.ones(3), operator)
    assert caught.value.message == f"{named} exists only inside a kernel"
    assert caught.value.span is not None


# ----------------------------------------------------------------------------- calls


@km.kernel
def fill(x, value):
    for i in km.grid_range(len(x)):
        x[i] = value


def test_a_kernel_is_not_called_like_a_function():
    with pytest.raises(ArgumentError) as caught:
        fill(np.zeros(3), 1)
    assert caught.value.message == (
        "kernel 'fill' is called like a function; it is launched on many threads"
    )
    assert caught.value.hint == (
        "write fill.launch(n, ...) for n elements, or fill[grid, block](...)"
    )


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda: fill.launch(-1, np.zeros(3), 1), "is launched for n=-1; accepted: a whole number"),
        (lambda: fill.launch(1.5, np.zeros(3), 1), "is launched for n=1.5"),
        (lambda: fill.launch((1, 2, 3, 4), np.zeros(3), 1), "is launched for n=\\(1, 2, 3, 4\\)"),
        (
            lambda: fill.launch(3, np.zeros(3)),
            "kernel 'fill': missing a required argument: 'value'",
        ),
        (lambda: fill.launch(3, np.zeros(3), 1, 2), "kernel 'fill': too many positional arguments"),
        (lambda: fill.launch(3, np.zeros(3), 1, y=2), "unexpected keyword argument 'y'"),
        (lambda: fill[4], "kernel 'fill' is configured by 1 values"),
        (lambda: fill[4, 0], "block=0 cannot be launched"),
        (lambda: fill.specialize(X, 1, block=2048), "2048 threads a block, the limit is 1024"),
        (lambda: fill.specialize("float32", 1), "argument 'x' is the text 'float32'"),
        (lambda: fill.specialize(None, 1), "argument 'x'"),
        (lambda: km.kernel(lambda x: None), "km.kernel expects a function made by `def`"),
        (lambda: km.kernel(3), "km.kernel expects a function made by `def`, got 3"),
    ],
)
def test_bad_calls(act, message):
    with pytest.raises(ArgumentError, match=message):
        act()


def test_all_elements_by_one_index_need_an_array_in_c_order():
    kernel = define("def k(x):\n    x.flat[0] = 1\n")
    assert "x_flat_" in kernel.source(XX)
    assert "x_flat_" not in kernel.source(X)
    with pytest.raises(
        OperatorError, match="`x` is no array that is passed with elements in C order"
    ):
        kernel.specialize(np.zeros((3, 4), np.float32).T)
    part = define("def k(x):\n    y = x[1:, :]\n    y.flat[0] = 1\n")
    with pytest.raises(OperatorError, match="`x` is no array that is passed"):
        part.specialize(XX)


def test_kernels_are_not_called_by_kernels():
    def k(x):
        fill(x, 1)

    with pytest.raises(OperatorError, match="`fill` is a kernel, which is launched and not called"):
        km.kernel(k).specialize(X)


def test_arguments_by_star_are_refused():
    def k(*xs):
        pass

    with pytest.raises(
        ArgumentError, match=r"kernel 'k' takes `\*xs`: a kernel's arguments are named"
    ):
        km.kernel(k)


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ({"debug": 1}, "write True or False"),
        ({"contract": "no"}, "write True or False"),
        ({"fast_math": None}, "write True or False"),
        ({"max_registers": 0}, "choose 1 to 255, or leave it out"),
        ({"max_registers": 256}, "choose 1 to 255, or leave it out"),
        ({"max_registers": 32.0}, "choose 1 to 255, or leave it out"),
    ],
    ids=str,
)
def test_options_that_no_kernel_can_have(option, hint):
    with pytest.raises(ArgumentError) as caught:
        km.kernel(**option)
    assert caught.value.hint == hint
    assert next(iter(option)) in str(caught.value)


def test_integers_have_64_bits():
    with pytest.raises(
        km.ScalarOverflowError, match="argument 'value' is the Python integer 9223372036854775808"
    ):
        fill.specialize(X, 1 << 63)
    with pytest.raises(km.ScalarOverflowError, match="Python integer 300 out of bounds for int8"):
        define("def k(x):\n    x[0] = 300\n").specialize("int8[:]")


def test_read_only_arrays_cannot_be_written():
    x = np.zeros(3)
    x.flags.writeable = False
    with pytest.raises(OperatorError, match="`x` is an array that cannot be written"):
        fill.specialize(x, 1)
    define("def k(x, y):\n    y[0] = x[0]\n").specialize(x, np.zeros(3))


def test_arrays_on_the_host_need_the_emulator():
    with pytest.raises(km.DeviceError) as caught:
        fill.launch(3, np.zeros(3), 1)
    assert caught.value.message == (
        "kernel 'fill' cannot run on cpu: its arrays are in the memory of the host, and kernels "
        "run on CUDA devices and on the emulator"
    )
    assert 'km.Device("emulator")' in caught.value.hint


def test_elements_must_be_aligned():
    packed = np.zeros(4, np.dtype([("tag", "u1"), ("value", "f4")]))
    with pytest.raises(ArgumentError, match="argument 'x' has strides"):
        fill.specialize(packed["value"], 1)


def test_what_is_baked_cannot_change():
    def k(x, n: km.static):
        x[0] = n

    with pytest.raises(ArgumentError, match="argument 'n' is a list, which can change"):
        km.kernel(k).specialize(X, [1])
    with pytest.raises(ArgumentError, match="argument 'n' is an array"):
        km.kernel(k).specialize(X, np.zeros(2))


def test_a_method_of_a_struct_is_a_function_that_takes_it():
    pair = km.struct({"x": km.float32, "y": km.float32}, name="Pair")

    @km.kernel
    def k(p: pair, out):
        out[0] = p.norm()

    with pytest.raises(km.OperatorError) as caught:
        k.source(pair(1, 2), "float32[:]")
    assert caught.value.message == "Pair has no method `norm`"
    assert caught.value.hint == "structs have fields alone; call a function of it: `norm(p)`"
