"""A text with inline PTX, an instruction a line, and what Python says that each leaves."""

from __future__ import annotations

import math
import struct
from typing import Final

__all__ = ["EXPECTED", "LANES", "TEXT", "lanes_expected"]

_ALL: Final = 0xFFFFFFFF


def _bits(x: float) -> int:
    return int.from_bytes(struct.pack("<f", x), "little")


def _half(x: float) -> int:
    return int.from_bytes(struct.pack("<e", x), "little")


def _field(x: int, at: int, n: int) -> int:
    return x >> at & ((1 << n) - 1)


# The instruction on registers `%0` (the result), `%1` to `%3` (words), `%4` and `%5` (long words),
# `%6` (a long result); the values of 1 to 5; what is left in 0 and 6.
_ROWS: Final[tuple[tuple[str, tuple[int, ...], int], ...]] = (
    ("add.u32 %0, %1, %2;", (_ALL, 3, 0), 2),
    ("sub.s32 %0, %1, -5;", (1, 0, 0), 6),
    ("add.sat.s32 %0, %1, %2;", (0x7FFFFFFF, 3, 0), 0x7FFFFFFF),
    ("mul.lo.s32 %0, %1, %2;", (_ALL - 2, 7, 0), (-21) & _ALL),
    ("mul.hi.u32 %0, %1, %2;", (0x80000001, 6, 0), 0x80000001 * 6 >> 32),
    ("mul.hi.s32 %0, %1, %2;", (_ALL, 6, 0), _ALL),
    ("mad.lo.u32 %0, %1, %2, %3;", (0x10000, 0x10001, 9), 0x10009),
    ("mad.hi.u32 %0, %1, %2, %3;", (0x80000000, 4, 9), 11),
    ("mul24.lo.u32 %0, %1, %2;", (0xFF000003, 5, 0), 15),
    ("sad.s32 %0, %1, %2, %3;", (_ALL, 4, 10), 15),
    ("abs.s32 %0, %1;", (_ALL - 8, 0, 0), 9),
    ("neg.s32 %0, %1;", (9, 0, 0), (-9) & _ALL),
    ("min.s32 %0, %1, %2;", (_ALL, 4, 0), _ALL),
    ("max.u32 %0, %1, %2;", (_ALL, 4, 0), _ALL),
    ("div.s32 %0, %1, %2;", ((-7) & _ALL, 2, 0), (-3) & _ALL),
    ("rem.u32 %0, %1, %2;", (17, 5, 0), 2),
    ("popc.b32 %0, %1;", (0xF0F00001, 0, 0), 9),
    ("clz.b32 %0, %1;", (0x00010000, 0, 0), 15),
    ("clz.b32 %0, %1;", (0, 0, 0), 32),
    ("bfind.u32 %0, %1;", (0x00010000, 0, 0), 16),
    ("bfind.s32 %0, %1;", (_ALL, 0, 0), _ALL),
    ("bfind.shiftamt.u32 %0, %1;", (0x00010000, 0, 0), 15),
    ("brev.b32 %0, %1;", (0x0000000D, 0, 0), 0xB0000000),
    ("bfe.u32 %0, %1, %2, %3;", (0xABCD1234, 8, 12), _field(0xABCD1234, 8, 12)),
    ("bfe.u32 %0, %1, 28, 8;", (0xABCD1234, 0, 0), 0xA),
    ("bfe.s32 %0, %1, %2, %3;", (0x00000F00, 8, 4), _ALL),
    ("bfe.s32 %0, %1, 30, 10;", (0x80000000, 0, 0), _ALL - 1),
    ("bfi.b32 %0, %1, %2, 4, 8;", (0xAB, 0xFFFF0000, 0), 0xFFFF0AB0),
    ("bmsk.clamp.b32 %0, %1, %2;", (4, 8, 0), 0xFF0),
    ("and.b32 %0, %1, 0xff00;", (0x1234, 0, 0), 0x1200),
    ("xor.b32 %0, %1, %2;", (0x1234, 0xFFFF, 0), 0x1234 ^ 0xFFFF),
    ("not.b32 %0, %1;", (0x1234, 0, 0), 0x1234 ^ _ALL),
    ("cnot.b32 %0, %1;", (0, 0, 0), 1),
    ("shl.b32 %0, %1, %2;", (1, 33, 0), 0),
    ("shr.s32 %0, %1, %2;", (0x80000000, 40, 0), _ALL),
    ("shr.u32 %0, %1, 4;", (0x80000000, 0, 0), 0x08000000),
    ("shf.l.wrap.b32 %0, %1, %2, %3;", (0x80000001, 2, 36), 0x28),
    ("shf.r.clamp.b32 %0, %1, %2, %3;", (0x80000000, 1, 33), 1),
    ("lop3.b32 %0, %1, %2, %3, 0x96;", (0b1100, 0b1010, 0b1001), 0b1100 ^ 0b1010 ^ 0b1001),
    ("lop3.b32 %0, %1, %2, %3, 0xe8;", (0b1100, 0b1010, 0b1001), 0b1000),
    ("prmt.b32 %0, %1, %2, 0x5140;", (0x33221100, 0x77665544, 0), 0x55114400),
    ("prmt.b32 %0, %1, %2, 0xb;", (0x80000000, 0, 0), 0x000000FF),
    ("dp4a.s32.s32 %0, %1, %2, %3;", (0x01FF0304, 0x01010101, 5), 1 - 1 + 3 + 4 + 5),
    ("dp4a.u32.u32 %0, %1, %2, %3;", (0x01FF0304, 0x01010101, 5), 1 + 255 + 3 + 4 + 5),
    ("add.f32 %0, %1, %2;", (_bits(1.5), _bits(2.25), 0), _bits(3.75)),
    ("fma.rn.ftz.f32 %0, %1, %2, 0f3F800000;", (_bits(3), _bits(4), 0), _bits(13)),
    ("mul.sat.f32 %0, %1, %2;", (_bits(3), _bits(4), 0), _bits(1)),
    ("min.NaN.f32 %0, %1, %2;", (_bits(3), _bits(-4), 0), _bits(-4)),
    ("max.f32 %0, %1, %2;", (0x7FC00000, _bits(4), 0), _bits(4)),
    ("abs.ftz.f32 %0, %1;", (_bits(-4), 0, 0), _bits(4)),
    ("copysign.f32 %0, %1, %2;", (_bits(-4), _bits(3), 0), _bits(-3)),
    ("rcp.approx.ftz.f32 %0, %1;", (_bits(4), 0, 0), _bits(0.25)),
    ("ex2.approx.f32 %0, %1;", (_bits(5), 0, 0), _bits(32)),
    ("lg2.approx.f32 %0, %1;", (_bits(32), 0, 0), _bits(5)),
    ("sqrt.rn.f32 %0, %1;", (_bits(2), 0, 0), _bits(math.sqrt(2))),
    ("add.f16x2 %0, %1, %2;", (0x3C003C00, 0x40003800, 0), _half(3) << 16 | _half(1.5)),
    ("fma.rn.f16x2 %0, %1, %1, %2;", (0x40004200, 0x3C003C00, 0), _half(5) << 16 | _half(10)),
    ("cvt.rn.f32.s32 %0, %1;", ((-7) & _ALL, 0, 0), _bits(-7)),
    ("cvt.rzi.s32.f32 %0, %1;", (_bits(-2.75), 0, 0), (-2) & _ALL),
    ("cvt.rni.u32.f32 %0, %1;", (_bits(2.5), 0, 0), 2),
    ("cvt.sat.u8.s32 %0, %1;", (300, 0, 0), 255),
    ("cvt.s32.s8 %0, %1;", (0x80, 0, 0), (-128) & _ALL),
    ("cvt.rn.f16x2.f32 %0, %1, %2;", (_bits(1), _bits(2), 0), _half(1) << 16 | _half(2)),
    ("selp.b32 %0, %1, %2, 1;", (5, 6, 0), 5),
    ("set.lt.u32.s32 %0, %1, %2;", (_ALL, 6, 0), _ALL),
    ("{ .reg .pred p; setp.ne.s32 p, %3, 0; selp.s32 %0, %1, %2, p; }", (5, 6, 0), 6),
    ("{ .reg .pred p, q; setp.gt.u32 p|q, %1, %2; @p mov.u32 %0, 1; @q mov.u32 %0, 2; }",
     (5, 6, 0), 2),
    ("{ .reg .pred p; setp.eq.u32 p, %1, 5; setp.lt.and.u32 p, %2, 9, p; selp.u32 %0, 1, 0, p; }",
     (5, 6, 0), 1),
    ("{\n\t.reg .b32 t<2>;\n\tshl.b32 t0, %1, 4; // twice\n\tor.b32 t1, t0, %2;\n\tmov.b32 %0, t1;\n}",
     (5, 6, 0), 0x56),
    ("{ .reg .b16 low, high; mov.b32 {low, high}, %1; mov.b32 %0, {high, low}; }",
     (0x12345678, 0, 0), 0x56781234),
    ("{ .reg .u64 w; mul.wide.u32 w, %1, %2; cvt.u32.u64 %0, w; mov.u64 %6, w; }",
     (_ALL, 16, 0), _ALL * 16),
    ("mad.wide.s32 %6, %1, %2, %4; mov.u32 %0, 0;", (_ALL, 5, 0), 2**40 - 5),
    ("add.cc.u64 %6, %4, %5; addc.u32 %0, %1, %2;", (5, 6, 0), (2**40 + 2**63) & (2**64 - 1)),
    ("{ .reg .u32 t; sub.cc.u32 t, %1, %2; subc.u32 %0, 0, 0; }", (5, 6, 0), _ALL),
    ("{ .reg .u32 t; mad.lo.cc.u32 t, %1, %2, %3; madc.hi.u32 %0, %1, %2, 0; }",
     (_ALL, _ALL, _ALL), _ALL * _ALL + _ALL >> 32),
    ("bfe.u64 %6, %4, 36, 8; popc.b64 %0, %4;", (0, 0, 0), 16),
    ("mov.b64 %6, {%1, %2}; mov.u32 %0, 1;", (1, 2, 0), 0x200000001),
    ("shr.s64 %6, %5, 60; clz.b64 %0, %4;", (0, 0, 0), 2**64 - 8),
)  # fmt: skip
# Of these rows the long result is looked at, the others leave it alone.
_LONG: Final = tuple("%6" in text for text, _, _ in _ROWS)
EXPECTED: Final = tuple(value for _, _, value in _ROWS)


def _line(number: int, text: str, given: tuple[int, ...]) -> str:
    words = "".join(f', "r"({value}u)' for value in given)[2:]
    shown = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    used = max(int(text[i + 1]) for i, c in enumerate(text) if c == "%")
    assert used <= 6
    shown = shown.replace("%6", "%7").replace("%5", "%6").replace("%4", "%5")
    for n in "321":
        shown = shown.replace(f"%{n}", f"%{int(n) + 1}")
    shown = shown.replace("%7", "%1")
    wide = f'"l"({1 << 40}ull), "l"({1 << 63}ull)'
    out = "l" if _LONG[number] else "r"
    return (
        f'  {{ unsigned r = 0; unsigned long long l = 0; asm volatile("{shown}" '
        f': "+r"(r), "+l"(l) : {words}, {wide}); out[{number}] = {out}; }}\n'
    )


LANES: Final = r"""
extern "C" __global__ void lanes(unsigned* out) {
  unsigned lane, below, up, sum, votes, same, first;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
  asm volatile("shfl.sync.up.b32 %0, %1, 1, 0, 0xffffffff;" : "=r"(up) : "r"(lane * 10));
  asm volatile("{ .reg .u32 t; .reg .pred p; mov.u32 %0, 0;\n"
               "shfl.sync.down.b32 t|p, %1, %2, 0x1f, 0xffffffff; @p mov.u32 %0, t; }"
               : "=r"(sum) : "r"(lane), "r"(30));
  asm volatile("{ .reg .pred p; setp.gt.u32 p, %1, 15; vote.sync.ballot.b32 %0, p, 0xffffffff; }"
               : "=r"(votes) : "r"(lane));
  asm volatile("match.any.sync.b32 %0, %1, 0xffffffff;" : "=r"(same) : "r"(lane % 3));
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(first));
  unsigned all;
  asm volatile("redux.sync.add.u32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(lane));
  __shared__ alignas(16) unsigned counts[4];
  if (threadIdx.x < 4) counts[threadIdx.x] = 0;
  __syncthreads();
  const unsigned place = (unsigned)__cvta_generic_to_shared(counts);
  unsigned old;
  asm volatile("red.relaxed.cta.shared::cta.add.u32 [%0+4], %1;" :: "r"(place), "r"(lane) : "memory");
  asm volatile("atom.shared.inc.u32 %0, [%1], 2;" : "=r"(old) : "r"(place) : "memory");
  asm volatile("atom.shared.cas.b32 %0, [%1+8], 0, 7;" : "=r"(old) : "r"(place) : "memory");
  __syncthreads();
  all += counts[1] * 1000 + counts[2] * 10000000 + counts[0];
  unsigned* at = out + 9 * threadIdx.x;
  at[0] = lane, at[1] = below, at[2] = up, at[3] = sum, at[4] = votes, at[5] = same, at[6] = first;
  at[7] = all;
  asm volatile("{ .reg .pred p; setp.lt.u32 p, %1, 8; @p st.global.u32 [%0+32], %1; @!p st.u32 [%0+32], 99; }"
               :: "l"(at), "r"(lane) : "memory");
}
"""


def lanes_expected(lane: int) -> list[int]:
    """Return what each lane of `lanes` leaves."""
    same = sum(1 << other for other in range(32) if other % 3 == lane % 3)
    return [
        lane, (1 << lane) - 1, 10 * max(lane - 1, 0), lane + 30 if lane < 2 else 0,
        0xFFFF0000, same, int(lane == 0), 70992496 + 64 % 3, lane if lane < 8 else 99,
    ]  # fmt: skip


TEXT: Final = (
    'extern "C" __global__ void words(unsigned long long* out) {\n'
    + "".join(_line(n, text, given) for n, (text, given, _) in enumerate(_ROWS))
    + "}\n"
    + LANES
)
