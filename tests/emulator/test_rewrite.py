"""The rewriter: what it changes, what it leaves, and that every line keeps its number."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_kernels import CORPUS
from kernel_examples import cases
from kernelmill.errors import CompileError, NotImplementedHere
from kernelmill.runtime.emulator.ptx import translate
from kernelmill.runtime.emulator.rewrite import KernelName, rewrite
from kernelmill.runtime.emulator.tokens import tokens

LAUNCH = "km_emu::launch(km_emu::Shape({}), [=](auto&... a_) {{ {}(km_emu::passed(a_)...); }}{})"

SAME = [
    "int a = b << c >> d;",
    "std::vector<std::vector<std::vector<int>>> v;",
    '// k<<<1, 1>>>(x);\nconst char* s = "k<<<1, 1>>>(x)";',
    'auto s = R"x(asm("nothing") )x";',
    "template <class T> __global__ void f(T x) {}",
    'extern int x; extern "C" void f();',
    "int million = 1'000'000; float f = 1e-5f + .5f;",
    "struct S { void f() const volatile; };",
    "#define M(x) \\\n  do { x; } while (0)\n",
]

CHANGED = {
    "k<<<1, 32>>>();": LAUNCH.format("1, 32", "k", "") + ";",
    "km::k<int, 4><<<dim3(2, f(3)), b, 0, s>>>(x, y[1]);": LAUNCH.format(
        "dim3(2, f(3)), b, 0, s", "km::k<int, 4>", ", x, y[1]"
    )
    + ";",
    "(*p)<<<a, b>>>(x);": LAUNCH.format("a, b", "(*p)", ", x") + ";",
    "if (x) k<<<(n + 7) >> 3, 8>>>(f<2>(x));": "if (x) "
    + LAUNCH.format("(n + 7) >> 3, 8", "k", ", f<2>(x)")
    + ";",
    "return k<<<1, 1>>>(x);": "return " + LAUNCH.format("1, 1", "k", ", x") + ";",
    "k<<<1, 1>>>(x, 0, NULL);": (
        "km_emu::launch(km_emu::Shape(1, 1), [=](auto& a0_) "
        "{ k(km_emu::passed(a0_), 0, NULL); }, x);"
    ),
    "k<<<1, 1>>>(x, {1, 2});": "km_emu::launch(km_emu::Shape(1, 1), [=] { k(x, {1, 2}); });",
    "__global__ void k(A& x, int n) {} void f() { k<<<1, 1>>>(*y, 2); }": (
        "__global__ void k(A& x, int n) {} void f() { km_emu::launch(km_emu::Shape(1, 1), "
        "[=](auto& a0_, auto& a1_) { k(*a0_, km_emu::passed(a1_)); }, km_emu::place_of(*y), 2); }"
    ),
    "void f() { extern __shared__ float s[]; }": (
        "void f() { float* s = (float*)KM_EMU_DYNAMIC; }"
    ),
    "void f() { extern __shared__ __align__(16) volatile int s[]; }": (
        "void f() { volatile int* s = (volatile int*)KM_EMU_DYNAMIC; }"
    ),
    "void f() { extern __shared__ int s[][8]; }": (
        "void f() { int (*s)[8] = (int (*)[8])KM_EMU_DYNAMIC; }"
    ),
    "void f() { __shared__ alignas(8) long s[4]; }": (
        "void f() { alignas(8)  __shared__ long s[4]; }"
    ),
    "#define RUN(name, T) name##_ ## T<<<1, 2>>>(x)\n": (
        "#define RUN(name, T) " + LAUNCH.format("1, 2", "name##_ ## T", ", x") + "\n"
    ),
    "extern __shared__ char s[]; int* p = reinterpret_cast<int*>(s);": (
        "static km_emu::Dynamic<char> s; int* p = reinterpret_cast<int*>(+s);"
    ),
    "extern __shared__ int s[];": "static km_emu::Dynamic<int> s;",
    "template __global__ void f<int>(int);": "template  void f<int>(int);",
    "__global__ inline void f() {}": "__global__ inline void f() {}",
    "__noinline__ void f();": "__attribute__((noinline)) void f();",
    'asm volatile("bar.sync 3, 64;" ::: "memory");': "km_emu::ptx::barrier_sync(3, 64);",
    'asm("mov.u32 %0, %%laneid;" : "=r"(lane));': "km_emu::ptx::lane((lane));",
}


@pytest.mark.parametrize("text", SAME)
def test_what_a_compiler_understands_stays(text):
    assert rewrite(text).text == text


@pytest.mark.parametrize("text", CHANGED)
def test_what_only_cuda_has_is_rewritten(text):
    assert rewrite(text).text == CHANGED[text]


TEXTS = [*CORPUS.glob("*.cu"), *(case.source for case in cases.CASES.values())]


@pytest.mark.parametrize("path", TEXTS, ids=lambda p: p.name)
def test_lines_keep_their_numbers(path):
    text = path.read_text()
    made = rewrite(text).text.splitlines()
    for before, after in zip(text.splitlines(), made, strict=True):
        if "<<<" not in before and "asm" not in before and "extern __shared__" not in before:
            assert after == before or not after.strip() or "asm" in text


@given(st.text("ab<>(){}[],;:\"'\\/*#\n 1.", max_size=60))
@settings(max_examples=300)
def test_tokens_joined_are_the_text(text):
    assert "".join(tokens(text)) == text


def test_kernels_are_found_with_their_namespaces_and_parameters():
    text = """
    #define KERNEL extern "C" __global__ void
    namespace a { namespace b::c {
    __global__ void __launch_bounds__(256, 2) first(const float* __restrict__ x, int n = 3);
    template <class T, int N> static __global__ void second(T (&y)[4], const T z[N]) {}
    inline int not_one(int x) { return x; }
    } }
    extern "C" { __global__ void third() {} }
    KERNEL fourth(struct P p, unsigned) {}
    struct S { __device__ void method(); };
    """
    assert rewrite(text).kernels == (
        KernelName("a::b::c::first", parameters=("x", "n")),
        KernelName("a::b::c::second", template=True, parameters=("y", "z")),
        KernelName("third", parameters=("",)),
        KernelName("fourth", parameters=("p", "unsigned")),
    )


REFUSED = {
    '\n\nasm("wgmma.fence;");': (NotImplementedHere, "line 3: the emulator does not know this PTX"),
    "\nusing namespace nvcuda; wmma::fragment f;": (NotImplementedHere, "line 2: .*tensor cores"),
    "tex2D(t, x, y)": (NotImplementedHere, "line 1: the emulator has no textures .tex2D."),
    "f(\n": (None, ""),
    "k<<<1, 2;": (CompileError, "line 1: this <<< has no >>>"),
    "k<<<1, 2>>>;": (CompileError, "line 1: after >>> come the arguments"),
    "\nk<<<1, 2>>>(x;": (CompileError, r"line .: this '\(' is never closed"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_cannot_be_rewritten_is_refused_by_its_line(text):
    error, message = REFUSED[text]
    if error is None:
        rewrite(text)
        return
    with pytest.raises(error, match=message):
        rewrite(text)


PTX = {
    "fence.acq_rel.gpu;": "fence<1>()",
    "ld.acquire.gpu.global.u32 %0, [%1];": "load<32, 2>(a, b)",
    "st.release.gpu.u64 [%0], %1;": "store<64, 2>(a, b)",
    "ld.volatile.shared.b32 %0, [%1];": "load<32, 1>(a, b)",
    "red.shared.or.b32 [%0], %1;": "update<km_emu::ptx::b32, km_emu::ptx::op_or>(a, b)",
    "atom.add.release.gpu.global.u32 %0, [%1], %2;": None,
    "atom.release.gpu.global.add.u32 %0, [%1], %2;": "fetch<km_emu::ptx::u32, km_emu::ptx::op_add>(a, b, c)",
    "atom.global.cas.b64 %0, [%1], %2, %3;": "exchange_if<km_emu::ptx::b64>(a, b, c, d)",
    "cp.async.ca.shared.global [%0], [%1], 16;": "copy<16>(a, b)",
    "bar.arrive 1, %0;": "barrier_arrive(1, a)",
    "{ .reg .pred P; W: mbarrier.test_wait.parity.shared.b64 P, [%0], %1; @!P bra W; }": (
        "transaction_wait(a, b)"
    ),
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0}, {%1}, {%2}, {%3};": None,
    "tex.2d.v4.f32.f32 {%0}, [%1, {%2}];": None,
}


@pytest.mark.parametrize("text", PTX)
def test_ptx_is_translated_by_the_table_or_refused(text):
    wanted = PTX[text]
    operands = [name for i, name in enumerate("abcd") if f"%{i}" in text]
    if wanted is None:
        with pytest.raises(NotImplementedHere, match="line 7: .*PTX: " + text.split(".")[0]):
            translate(text, operands, 7)
    else:
        assert translate(text, operands, 7) == f"km_emu::ptx::{wanted}"


def test_shared_memory_is_recognised_wherever_the_word_stands():
    for text in (
        "void f() { extern double __shared__ s[]; }",
        "void f() { extern __shared__ double s[]; }",
        "void f() { extern __align__(8) __shared__ double s[]; }",
    ):
        assert rewrite(text).text == "void f() { double* s = (double*)KM_EMU_DYNAMIC; }"
    kept = "extern __shared__ int* p; extern int s[]; extern int f(int s[4]);"
    assert rewrite(kept).text == kept


def test_overloaded_kernels_are_launched_but_have_no_name():
    text = """__global__ void f(int* x);
    __global__ void f(int* x) {}
    __global__ void f(float* x) {}
    __global__ void g(int);
    __global__ void g(int n) {}"""
    assert [kernel.name for kernel in rewrite(text).kernels] == ["g", "g"]
