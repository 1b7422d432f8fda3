"""Kernels in their plain form: which ones have it, and that it does what the kernel does."""

from __future__ import annotations

import numpy as np
import pytest

import kernelmill as km
from kernelmill.runtime.emulator import Schedule, build, compile_emulated, scheduled
from kernelmill.runtime.emulator.plain import plain_forms

HEAD = '#define K extern "C" __global__\n#define WIDTH 4\n#define TURN __syncthreads()\n'

CERTAIN = {
    "triad": "K void triad(const float* a, float* y, int n) {"
    " int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * a[i] + y[i]; }",
    "early": "K void early(const float* a, float* y, int n) {"
    " const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n || i % 3 == 0) return;"
    " float s = 0; for (int k = 0, m = WIDTH; k < m; k++) s += sqrtf(fabsf(a[(i + k) % n])); y[i] = s; }",
    "meet": "K void meet(const float* a, float* y, int n) {"
    " y[(threadIdx.x + blockIdx.x) % 7] += a[threadIdx.x % n]; y[7] = (float)(threadIdx.x); }",
    "shifted": "K void shifted(const float* a, float* y, int n) { int i = threadIdx.x;"
    " if (i + 1 < n) y[i + 1] = y[i] + a[i]; }",
    "bytes": "K void bytes(const float* a, float* y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x;"
    " unsigned char* p = (unsigned char*)(y); if (i < 4 * n) p[i] = static_cast<unsigned char>(3 * i); }",
    "several": "K void several(const float* a, float* y, int n) {"
    " const int i = threadIdx.x, j = min(i + 1, n - 1), *p = &j; if (i < n) y[i] = a[*p] * a[j]; }",
    "cube": "K void cube(const float* a, float* y, int n) {"
    " uint3 t = threadIdx; int i = (t.z * blockDim.y + t.y) * blockDim.x + t.x + gridDim.x * 0;"
    " while (i < n) { y[i] = a[i] * (t.z + 1); i += 64; } }",
}  # fmt: skip

UNCERTAIN = {
    "barrier": "K void k(float* y) { y[0] = 1; __syncthreads(); y[1] = 2; }",
    "hidden barrier": "K void k(float* y) { y[0] = 1; TURN; y[1] = 2; }",
    "function": "__device__ int f() { return threadIdx.x; } K void k(int* y) { y[f()] = 1; }",
    "pointer to function": "K void k(int* y, int (*f)()) { y[0] = (*f)(); }",
    "shared": "K void k(float* y) { __shared__ float s[4]; s[0] = 1; y[0] = s[0]; }",
    "static": "K void k(float* y) { static int s; y[0] = s++; }",
    "global": "__device__ float g; K void k(float* y) { y[0] = g; }",
    "global in a product": "__device__ int g; K void k(int* y) { int i = 2 * g; y[0] = i; }",
    "global as an argument": "__device__ int g; K void k(int* y) { int i = min(1, g); y[0] = i; }",
    "global behind a declaration": "__device__ int g; K void k(int* y) { int i; y[0] = 1, g; }",
    "own type": "struct T { float x; }; K void k(T* y) { y[0].x = 1; }",
    "atomic": "K void k(int* y) { atomicAdd(y, 1); }",
    "lambda": "K void k(int* y) { auto f = [=] { return 1; }; y[0] = f(); }",
    "print": 'K void k(int* y) { printf("%d", y[0]); }',
    "template": "template <class T> __global__ void k(T* y) { y[0] = 1; }",
    "namespace": "namespace n { __global__ void k(int* y) { y[0] = 1; } }",
    "two": "#if 0\nK void k(int* y) { y[0] = 1; }\n#else\nK void k(int* y) { y[0] = 2; }\n#endif",
    "directive": "K void k(int* y) {\n#ifdef A\ny[0] = 1;\n#endif\n}",
    "changed macro": "#undef WIDTH\n#define WIDTH 5\nK void k(int* y) { y[0] = WIDTH; }",
    "method": "K void k(int* y) { int2 v = make_int2(1, 2); y[0] = v.f(1); }",
}


@pytest.mark.parametrize("name", CERTAIN)
def test_certain_kernels_have_a_plain_form(name):
    assert list(plain_forms(HEAD + CERTAIN[name])) == [name]


@pytest.mark.parametrize("why", UNCERTAIN)
def test_others_have_none(why):
    assert plain_forms(HEAD + UNCERTAIN[why]) == {}


def test_macros_of_headers_count():
    text = CERTAIN["early"]
    assert list(plain_forms(text, [HEAD])) == ["early"]
    assert plain_forms(text, [HEAD, "#define WIDTH f()"]) == {}


@pytest.fixture(scope="module")
def code():
    return compile_emulated(HEAD + "\n".join(CERTAIN.values()))


@pytest.mark.parametrize("name", CERTAIN)
@pytest.mark.parametrize("block", [(96, 1, 1), (8, 3, 4), (1, 1, 1)])
@pytest.mark.parametrize("overlap", [0, 1, 5])
def test_a_plain_form_does_what_the_threads_do_in_order(code, monkeypatch, name, block, overlap):
    n = 150
    start = np.random.default_rng(n).standard_normal(n + 8, np.float32)
    results = []
    for plain in (True, False):
        text = HEAD + "\n".join(CERTAIN.values())
        if not plain:
            monkeypatch.setattr("kernelmill.runtime.emulator.sources.plain_forms", lambda *_: {})
            text += "\n// one by one"
        kernel = (code if plain else compile_emulated(text)).get_kernel(name)
        memory = start.copy()
        a, y = memory[overlap : overlap + n], memory[8:] if overlap else start[:n].copy()
        with scheduled(Schedule(blocks=1)):
            km.launch(None, km.LaunchConfig(2, block), kernel, a, y, n)
        results.append((memory, y))
    for found, wanted in zip(*results, strict=True):
        assert found.tobytes() == wanted.tobytes()


def test_a_form_that_does_not_compile_is_left_out(monkeypatch):
    broken = "static inline void km_emu_plain_triad(nonsense x) {}"
    monkeypatch.setattr(
        "kernelmill.runtime.emulator.sources.plain_forms", lambda *_: {"triad": broken}
    )
    seen = []
    compiled = build.compile_shared

    def watched(text, *args, **options):
        seen.append(broken in text)
        return compiled(text, *args, **options)

    monkeypatch.setattr(build, "compile_shared", watched)
    kernel = compile_emulated(HEAD + CERTAIN["triad"] + "// broken").get_kernel("triad")
    a, y = np.arange(5, dtype=np.float32), np.ones(5, np.float32)
    km.launch(None, km.LaunchConfig(1, 8), kernel, a, y, 5)
    assert y.tolist() == [1, 3, 5, 7, 9]
    assert seen == [True, False]


@pytest.mark.parametrize("turn", ["", "if (threadIdx.x > 900) __syncthreads();"])
def test_a_float_by_way_of_an_integer_has_no_negative_zero(turn):
    kernel = compile_emulated(
        HEAD
        + "K void k(const float* x, float* y, int n) { int i = threadIdx.x; "
        + turn
        + " if (i < n) y[i] = (float)(int)x[i]; }"
    ).get_kernel("k")
    x, y = np.linspace(-1.5, 1.5, 37, dtype=np.float32), np.full(37, 7, np.float32)
    km.launch(None, km.LaunchConfig(1, 64), kernel, x, y, 37)
    assert y.tobytes() == x.astype(np.int32).astype(np.float32).tobytes()
