"""Kernels with their arguments and what they must give: run on the emulator and on GPUs alike."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import kernelmill as km

WEIGHTS = np.array([0.25, 0.5, 0.25], np.float32)
TILE = 16


@km.struct
class Body:
    x: km.float32
    mass: km.float32
    id: km.int32


@dataclass(frozen=True)
class Case:
    """One launch: `expected` maps the position of an argument to its elements afterwards."""

    name: str
    kernel: Any
    args: tuple
    expected: dict
    n: Any = None
    config: Any = None
    rtol: float = field(default=1e-5)


def rng():
    return np.random.default_rng(7)


def f32(*shape):
    return rng().uniform(-1, 1, shape).astype(np.float32)


CASES: list[Case] = []


def case(name, kernel, args, expected, **options):
    CASES.append(Case(name, kernel, tuple(args), expected, **options))


# ----------------------------------------------------------------------------- element-wise


@km.kernel
def saxpy(a, x, y):
    for i in km.grid_range(len(x)):
        y[i] = a * x[i] + y[i]


_x, _y = f32(1000), f32(1000) + 2
case("saxpy", saxpy, (2.5, _x, _y.copy()), {2: np.float32(2.5) * _x + _y}, n=1000)
case("saxpy of float64", saxpy, (2.5, _x.astype("f8"), _y.astype("f8")),
     {2: 2.5 * _x.astype("f8") + _y.astype("f8")}, n=1000, rtol=1e-12)  # fmt: skip
case("saxpy with few threads", saxpy, (2.5, _x, _y.copy()),
     {2: np.float32(2.5) * _x + _y}, config=(1, 64))  # fmt: skip
case("saxpy on a grid of three dimensions", saxpy, (2.5, _x, _y.copy()),
     {2: np.float32(2.5) * _x + _y}, config=((2, 2, 2), (8, 4, 2)))  # fmt: skip


@km.kernel
def gray(image, out):
    height, width = out.shape
    for i, j in km.grid_range(height, width):
        r, g, b = image[i, j, 0], image[i, j, 1], image[i, j, 2]
        out[i, j] = (299 * np.int32(r) + 587 * np.int32(g) + 114 * np.int32(b)) // 1000


_image = rng().integers(0, 256, (37, 45, 3)).astype(np.uint8)
_wide = _image.astype(np.int64)
_gray = ((299 * _wide[..., 0] + 587 * _wide[..., 1] + 114 * _wide[..., 2]) // 1000).astype(np.uint8)
case("gray", gray, (_image, np.zeros((37, 45), np.uint8)), {1: _gray}, n=(37, 45))
case("gray with threads in one dimension", gray, (_image, np.zeros((37, 45), np.uint8)),
     {1: _gray}, config=(4, 64))  # fmt: skip


@km.kernel
def flat(x, out):
    for i in km.grid_range(x.size):
        out.flat[i] = 2 * x.flat[i]
        if i == x.size - 1:
            out.flat[-1] = out.ndim + x.flat.size


_cube = f32(4, 5, 6)
_flat = 2 * _cube
_flat[-1, -1, -1] = 123
case(
    "all elements by one index",
    flat,
    (_cube, np.zeros((4, 5, 6), np.float32)),
    {1: _flat},
    config=(1, 64),
)


@km.kernel
def fields(bodies, out):
    for i in km.grid_range(len(bodies)):
        bodies[i].x += 1
        body = bodies[i]
        out[i] = body.x * bodies[i].mass + body.id
        bodies[i] = Body(body.x, 2 * body.mass, -body.id)


_bodies = np.zeros(70, Body.dtype)
_bodies["x"], _bodies["mass"], _bodies["id"] = f32(70), f32(70), np.arange(70)
_after = _bodies.copy()
_after["x"] += 1
_after["mass"] *= 2
_after["id"] *= -1
_moved = (_bodies["x"] + 1) * _bodies["mass"] + _bodies["id"]
case("fields of structs", fields, (_bodies.copy(), np.zeros(70)), {0: _after, 1: _moved}, n=70)


@km.kernel
def named_fields(bodies, z, out):
    for i in km.grid_range(len(bodies)):
        bodies[i]["x"] += 1
        bodies[i][-1] = 3 * i
        out[i] = z[i].real - 2 * z[i].imag + bodies[i]["x"] + out[i].real + out[i].imag


_named, _z = _bodies.copy(), (f32(70) + 1j * f32(70)[::-1]).astype(np.complex64)
_named["x"] += 1
_named["id"] = 3 * np.arange(70)
case("fields by name and place, parts of complex elements", named_fields,
     (_bodies.copy(), _z, np.ones(70)), {0: _named, 2: _z.real - 2 * _z.imag + _named["x"] + 1.0},
     n=70)  # fmt: skip


@km.kernel
def smooth(x, out):
    for i in km.grid_range(len(out)):
        total = np.float32(0)
        for k in range(3):
            total += WEIGHTS[k] * x[i + k]
        out[i] = total


_smooth = np.convolve(_x, WEIGHTS[::-1], "valid")
case("constant arrays", smooth, (_x, np.zeros(998, np.float32)), {1: _smooth}, n=998)


BITS, HALVES = np.array([[True, False], [False, True]]), np.array([0.5, -2], np.float16)
TURNS, BODY = np.array([1j, -1], np.complex64), np.zeros(2, Body.dtype)
BODY["x"], BODY["id"] = (3, 4), (5, 6)
BYTES = np.array([-1, 3], np.int8)


@km.kernel
def constants(out, z):
    for i in km.grid_range(2):
        out[i] = (HALVES[i] if BITS[i, 1 - i] or BITS[i, i] else 9) + BODY[i].x * BODY[i].id
        out[i] += BYTES[i] + BODY[1].id
        z[i] = TURNS[i] * TURNS[0]


case("constants of every kind", constants, (np.zeros(2), np.zeros(2, np.complex64)),
     {0: np.array([0.5 + 15 - 1 + 6, -2 + 24 + 3 + 6]), 1: np.array([-1, -1j])}, n=2)  # fmt: skip


@km.kernel
def window(x, out, radius: km.static, weights: km.static = (1, 2, 1)):
    for i in km.grid_range(len(out)):
        total = x.dtype(0)
        for k in km.static_range(2 * radius + 1):
            total += weights[k] * x[i + k]
        out[i] = total


_window = _x[:-2] + 2 * _x[1:-1] + _x[2:]
case("static arguments", window, (_x, np.zeros(998, np.float32), 1), {1: _window}, n=998)


def halved(v, limit):
    if v > limit:
        return v / 2
    return v


def put(row, j, v):
    row[j] = v
    row[-1] = 7


@km.kernel
def device_functions(x, out, limit):
    rows, width = x.shape
    for i in km.grid_range(rows):
        row = out[i, :]
        for j in range(width):
            put(row, j, halved(x[i, j], limit))


_m = f32(20, 9)
_halved = np.where(_m > 0.25, _m / 2, _m)
_halved[:, -1] = 7
case("device functions", device_functions, (_m, np.zeros((20, 9), np.float32), 0.25),
     {1: _halved}, n=20)  # fmt: skip


@km.kernel
def strided(x, out):
    for i, j in km.grid_range(x.shape[0], x.shape[1]):
        out[j, i] = x[i, j] * 2


case("a transposed input", strided, (_m.T, np.zeros((20, 9), np.float32)), {1: 2 * _m}, n=(9, 20))
case("rows with gaps", strided, (f32(20, 18)[:, :9], np.zeros((9, 20), np.float32)),
     {1: 2 * f32(20, 18)[:, :9].T}, n=(20, 9))  # fmt: skip
case("every other element", strided, (f32(20, 18)[::2, ::2], np.zeros((9, 10), np.float32)),
     {1: 2 * f32(20, 18)[::2, ::2].T}, n=(10, 9))  # fmt: skip
case("elements in reverse", strided, (f32(20, 9)[::-1, ::-1], np.zeros((9, 20), np.float32)),
     {1: 2 * f32(20, 9)[::-1, ::-1].T}, n=(20, 9))  # fmt: skip


@km.kernel
def flow(x, out):
    for i in km.grid_range(len(x)):
        v = x[i]
        if v == 0:
            continue
        steps = 0
        while v != 1 and steps < 100:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            steps += 1
        if i > 0 and x[i - 1] > x[i]:
            steps = -steps
        out[i] = steps


def collatz(values):
    out = np.zeros(len(values), np.int32)
    for i, v in enumerate(values.tolist()):
        if v == 0:
            continue
        steps = 0
        while v != 1 and steps < 100:
            v = v // 2 if v % 2 == 0 else 3 * v + 1
            steps += 1
        out[i] = -steps if i > 0 and values[i - 1] > values[i] else steps
    return out


_numbers = rng().integers(0, 60, 300).astype(np.int32)
case("control flow", flow, (_numbers, np.zeros(300, np.int32)), {1: collatz(_numbers)}, n=300)


@km.kernel
def kinds(flags, halves, z, out):
    for i in km.grid_range(len(flags)):
        h = halves[i] * 2
        flags[i] = not flags[i]
        z[i] = z[i] * 1j
        halves[i] = h if flags[i] else -h
        out[i] = i if flags[i] else -1


_flags = rng().integers(0, 2, 50).astype(bool)
_halves, _z = f32(50).astype(np.float16), (f32(50) + 1j * f32(50)).astype(np.complex64)
case("bools, halves and complex numbers", kinds,
     (_flags.copy(), _halves.copy(), _z.copy(), np.zeros(50, np.int64)),
     {0: ~_flags, 1: np.where(~_flags, _halves * 2, -_halves * 2), 2: _z * 1j,
      3: np.where(~_flags, np.arange(50), -1)}, n=50)  # fmt: skip


@km.kernel
def scalars(out, a, b, c, d):
    for i in km.grid_range(1):
        out[i] = a + b
        out[i + 1] = c if d else 0
        out[i + 2] = out.size


case("scalars of every kind", scalars, (np.zeros(3), 3, np.float32(0.5), 1 << 40, True),
     {0: np.array([3.5, float(1 << 40), 3])}, n=1)  # fmt: skip


def two(a):
    return a[0] + a[1]


@km.kernel
def every_type(b, i1, i2, i4, i8, u1, u2, u4, u8, f2, f4, f8, c8, c16):  # noqa: PLR0917
    for _ in km.grid_range(1):
        b[0] = b[1]
        for a in (1, 2):
            i1[0], i2[0], i4[0], i8[0] = two(i1) * a, two(i2), -i4[1], i8[1] // 2
        u1[0], u2[0], u4[0], u8[0] = ~u1[1], u2[1] << 1, u4[1] % 7, u8[1] - 1
        f2[0], f4[0], f8[0] = f2[1] * 2, np.sqrt(f4[1]), np.exp(f8[1])
        c8[0], c16[0] = c8[1] * c8[1], two(c16).conjugate()


_types = [np.array([0, 3], t) for t in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2",
                                        "f4", "f8", "c8", "c16")]  # fmt: skip
_first = [True, 12, 6, -3, 1, 252, 6, 3, 2, 6, np.sqrt(3), np.exp(3), 9, 3]
case("every element type", every_type, _types,
     {i: np.array([first, 3], t.dtype) for i, (first, t) in enumerate(zip(_first, _types, strict=True))},
     n=1)  # fmt: skip


# ----------------------------------------------------------------------------- blocks


@km.kernel
def transpose(x, y):
    tile = km.shared((TILE, TILE + 1), x.dtype)
    rows, width = x.shape
    for bi, bj in km.tile_range(-(-rows // TILE), -(-width // TILE)):
        for r, c in km.block_range(TILE, TILE):
            if bi * TILE + r < rows and bj * TILE + c < width:
                tile[r, c] = x[bi * TILE + r, bj * TILE + c]
        km.barrier()
        for r, c in km.block_range(TILE, TILE):
            if bi * TILE + c < rows and bj * TILE + r < width:
                y[bj * TILE + r, bi * TILE + c] = tile[c, r]
        km.barrier()


_big = f32(45, 70)
for _config in ((6, (16, 4)), (3, 64), ((2, 3), (16, 16)), (5, (8, 8, 2))):
    case(f"transpose on {_config}", transpose, (_big, np.zeros((70, 45), np.float32)),
         {1: _big.T}, config=_config)  # fmt: skip


@km.kernel
def matmul(a, b, out):
    left = km.shared((TILE, TILE), a.dtype)
    right = km.shared((TILE, TILE), b.dtype)
    n, depth = a.shape
    m = b.shape[1]
    for bi, bj in km.tile_range(n // TILE, m // TILE):
        for r, c in km.block_range(TILE, TILE):
            i, j = bi * TILE + r, bj * TILE + c
            total = a.dtype(0)
            for k in range(0, depth, TILE):
                left[r, c] = a[i, k + c]
                right[r, c] = b[k + r, j]
                km.barrier()
                for s in range(TILE):
                    total += left[r, s] * right[s, c]
                km.barrier()
            out[i, j] = total


_a, _b = f32(32, 48), f32(48, 64)
case("tiled matmul", matmul, (_a, _b, np.zeros((32, 64), np.float32)),
     {2: (_a.astype("f8") @ _b.astype("f8")).astype("f4")}, config=(5, (16, 16)), rtol=1e-4)  # fmt: skip


@km.kernel
def softmax(x, out):
    for row in km.tile_range(x.shape[0]):
        top = np.float32(-np.inf)
        for j in km.block_range(x.shape[1]):
            top = max(top, x[row, j])
        top = km.block.reduce(top, km.maximum)
        total = np.float32(0)
        for j in km.block_range(x.shape[1]):
            total += np.exp(x[row, j] - top)
        total = km.block.reduce(total)
        for j in km.block_range(x.shape[1]):
            out[row, j] = np.exp(x[row, j] - top) / total


_s = f32(7, 300) * 9
_e = np.exp(_s.astype("f8") - _s.max(1, keepdims=True))
for _config in ((3, 128), (7, 32), (2, (32, 2))):
    case(f"softmax on {_config}", softmax, (_s, np.zeros_like(_s)),
         {1: (_e / _e.sum(1, keepdims=True)).astype("f4")}, config=_config, rtol=1e-4)  # fmt: skip


@km.kernel
def histogram(x, bins):
    own = km.shared(32, km.uint32)
    for k in km.block_range(32):
        own[k] = 0
    km.barrier()
    for i in km.grid_range(len(x)):
        km.atomic.add(own, x[i], 1, scope="block")
    km.barrier()
    for k in km.block_range(32):
        km.atomic.add(bins, k, own[k])


_bytes = rng().integers(0, 32, 5000).astype(np.uint8)
case("histogram", histogram, (_bytes, np.zeros(32, np.uint32)),
     {1: np.bincount(_bytes, minlength=32)}, config=(3, 128))  # fmt: skip


@km.kernel
def extremes(x, out, counts):
    for i in km.grid_range(len(x)):
        v = x[i]
        km.atomic.min(out, 0, v)
        km.atomic.max(out, 1, v)
        km.atomic.sub(counts, (0, 0), 1)
        km.atomic.and_(counts, (0, 1), i)
        km.atomic.or_(counts, (1, 0), i)
        km.atomic.xor(counts, (1, 1), i)


_i = np.arange(3, 200)
case("atomics", extremes, (_x[3:200], np.zeros(2, np.float32), np.full((2, 2), 255, np.int64)),
     {1: np.array([_x[3:200].min(), _x[3:200].max()]),
      2: np.array([[255 - 197, 0], [255, 255 ^ np.bitwise_xor.reduce(np.arange(197))]])}, n=197)  # fmt: skip


@km.kernel
def exchange(slots, old, x):
    for i in km.grid_range(len(x)):
        km.atomic.exch(slots, 0, 5)
        if km.atomic.cas(slots, 1, 0, i + 1) == 0:
            old[0] = i
        km.atomic.store(slots, 2, 9, order="release", scope="device")
        old[1] = km.atomic.load(slots, 2)
        km.fence()
        km.atomic.add(x, i, 0.5, order="acquire_release")


case("exchanges", exchange, (np.zeros(3, np.int32), np.zeros(2, np.int32), np.zeros(1, np.float32)),
     {0: np.array([5, 1, 9]), 1: np.array([0, 9]), 2: np.array([0.5])}, config=(1, 32))  # fmt: skip


@km.kernel
def narrow_atomics(bytes_, halves, flags):
    for i in km.grid_range(64):
        km.atomic.add(bytes_, i % 4, 1)
        km.atomic.add(halves, i % 2, 0.5)
        km.atomic.max(bytes_, 4, i)
        km.atomic.or_(flags, i % 3, i > 31)


case("atomics of narrow types", narrow_atomics,
     (np.zeros(8, np.uint8), np.zeros(2, np.float16), np.zeros(4, bool)),
     {0: np.array([16, 16, 16, 16, 63, 0, 0, 0]), 1: np.array([16, 16]),
      2: np.array([1, 1, 1, 0], bool)}, n=64)  # fmt: skip


@km.kernel
def warps(x, out, masks):
    for i in km.grid_range(len(x)):
        v = x[i]
        lane = km.warp.lane()
        out[0, i] = km.warp.shuffle(v, 3)
        out[1, i] = km.warp.shuffle_up(v, 2)
        out[2, i] = km.warp.shuffle_down(v, 2)
        out[3, i] = km.warp.shuffle_xor(v, 1)
        out[4, i] = km.warp.reduce(v)
        out[5, i] = km.warp.scan(v, lambda a, b: max(a, b))
        masks[0, i] = km.warp.ballot(v > 0)
        masks[1, i] = km.warp.match(i % 4)
        masks[2, i] = km.warp.any(v > 5) + 2 * km.warp.all(lane < km.warp.size)
        km.warp.barrier()


_w = rng().integers(-9, 9, 64).astype(np.int32)
_r = _w.reshape(2, 32)
_lane = np.arange(32)
_shuffled = np.stack([
    np.repeat(_r[:, 3], 32).reshape(2, 32), _r[:, np.where(_lane < 2, _lane, _lane - 2)],
    _r[:, np.where(_lane > 29, _lane, _lane + 2)], _r[:, _lane ^ 1],
    np.repeat(_r.sum(1), 32).reshape(2, 32), np.maximum.accumulate(_r, 1)]).reshape(6, 64)  # fmt: skip
_ballots = ((_r > 0).astype(np.uint64) << _lane.astype(np.uint64)).sum(1)
_masks = np.stack([
    np.repeat(_ballots, 32), [0x11111111 << (i % 4) for i in range(64)],
    np.repeat((_r > 5).any(1), 32) + 2]).astype(np.uint32)  # fmt: skip
case("warps", warps, (_w, np.zeros((6, 64), np.int32), np.zeros((3, 64), np.uint32)),
     {1: _shuffled, 2: _masks}, config=(1, 64))  # fmt: skip


@km.kernel
def blocks(x, out, counts):
    i = km.block.rank()
    v = x[i]
    out[0, i] = km.block.reduce(v)
    out[1, i] = km.block.scan(v)
    out[2, i] = km.block.exclusive_scan(v, 100)
    out[3, i] = km.block.reduce(v, lambda a, b: a * 10 + b)
    any_, all_ = km.block.any(v > 7), km.block.all(v >= 0)
    if i == 0:
        counts[0] = km.block.size()
        counts[1] = any_
        counts[2] = all_
    counts[3] = km.block.count(v > 3)


def ordered(values):
    total = 0
    parts = [int(v) for v in values]
    while len(parts) > 1:
        parts = [a * 10 + b for a, b in zip(parts[::2], parts[1::2], strict=True)]
    total = parts[0]
    return total


for _size, _shape in ((32, 32), (64, (8, 8)), (256, (16, 4, 4)), (1024, 1024)):
    _v = rng().integers(0, 9, _size).astype(np.int64)
    _sum = np.cumsum(_v)
    case(f"blocks of {_shape}", blocks, (_v, np.zeros((4, _size), np.int64), np.zeros(4, np.int32)),
         {1: np.stack([np.full(_size, _sum[-1]), _sum, 100 + _sum - _v,
                       np.full(_size, ordered(_v))]),
          2: np.array([_size, (_v > 7).any(), 1, (_v > 3).sum()])}, config=(1, _shape))  # fmt: skip


@km.kernel
def sorts(x, y, out, floats):
    i = km.block.rank()
    out[0, i] = km.warp.sort(x[i])
    out[1, i] = km.block.sort(x[i])
    out[2, i] = km.block.sort(x[i], lambda a, b: a % 5 < b % 5)
    out[3, i] = km.block.merge(y[i], 40, lambda a, b: a // 10 > b // 10)
    floats[0, i] = km.block.sort(floats[0, i])
    floats[1, i] = km.warp.sort(floats[1, i], lambda a, b: a > b)


def merged(values, first):
    found = np.concatenate([np.sort(values[:first])[::-1], np.sort(values[first:])[::-1]])
    return found, found[np.argsort(-(found // 10), kind="stable")]


for _size, _shape in ((64, 64), (96, (8, 12)), (416, 416)):
    _v = rng().permutation(4 * _size)[:_size].astype(np.int32)
    _halves, _merged = merged(rng().permutation(9 * _size)[:_size].astype(np.int32), 40)
    _f = f32(2, _size)
    _f[0, ::7] = np.nan
    case(f"sorts of {_shape}", sorts, (_v, _halves, np.zeros((4, _size), np.int32), _f),
         {2: np.stack([np.sort(_v.reshape(-1, 32)).ravel(), np.sort(_v),
                       _v[np.argsort(_v % 5, kind="stable")], _merged]),
          3: np.stack([np.sort(_f[0]), -np.sort(-_f[1].reshape(-1, 32)).ravel()])},
         config=(1, _shape))  # fmt: skip


@km.kernel
def local_arrays(x, out):
    held = km.local((2, 3), x.dtype)
    for i in km.grid_range(len(out)):
        for r in km.static_range(2):
            for c in km.static_range(3):
                held[r, c] = x[i, 3 * r + c]
        out[i] = total_of(held)


def total_of(held):
    total = held.dtype(0)
    for r in range(held.shape[0]):
        for c in range(held.shape[1]):
            total += held[r, c] * (r + 1)
    return total


_six = f32(40, 6)
_weighted = (_six * np.array([1, 1, 1, 2, 2, 2], np.float32)).sum(1)
case(
    "local arrays", local_arrays, (_six, np.zeros(40, np.float32)), {1: _weighted}, n=40, rtol=1e-4
)


@km.kernel
def reverse(x, n):
    first = km.dynamic_shared(n, x.dtype)
    second = km.dynamic_shared((2, n), km.int32)
    for i in km.block_range(n):
        first[i] = x[i]
        second[0, i] = i
        second[1, i] = -i
    km.barrier()
    for i in km.block_range(n):
        x[i] = first[n - 1 - i] + second[0, i] + second[1, n - 1 - i]


_n = 101
case("dynamic shared memory", reverse, (_x[:_n].copy(), _n),
     {0: _x[:_n][::-1] + np.arange(_n) - np.arange(_n)[::-1]}, config=(1, 64, None, 4096))  # fmt: skip


@km.kernel
def raw_indices(out):
    i = km.blockIdx.x * km.blockDim.x + km.threadIdx.x
    if i < len(out):
        out[i] = i + 1000 * km.gridDim.x + km.blockDim.y


case(
    "raw indices", raw_indices, (np.zeros(50, np.int32),), {0: np.arange(50) + 2001}, config=(2, 32)
)


@km.kernel
def with_operator(x, out, op):
    best = x[0]
    for i in km.block_range(len(x)):
        best = op(best, x[i])
    out[0] = km.block.reduce(best, op)


case("an operator as an argument", with_operator, (_x, np.zeros(1, np.float32), km.maximum),
     {1: np.array([_x.max()])}, config=(1, 64))  # fmt: skip
