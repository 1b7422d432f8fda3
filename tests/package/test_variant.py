"""Names of variants and the choice among them, against `kernels` of Hugging Face."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels import backends as hf_backends
from kernels import variants as hf
from packaging.version import Version

from kernelmill.errors import PackageError
from kernelmill.package.release import Release
from kernelmill.package.system import System, here
from kernelmill.package.variant import Backend, Variant, decide

BACKENDS = ("cpu", "metal", "neuron", "tpu", "cu118", "cu126", "cu128", "cu130", "cu132", "cu120",
            "rocm63", "rocm64", "xpu20252", "cann82", "cann80")  # fmt: skip
FRAMEWORKS = ("torch29", "torch213", "torch213-cxx11", "torch213-cxx98", "torch211-cxx11",
              "torch-stable-abi29", "torch-stable-abi210", "torch-stable-abi214", "tvm-ffi01",
              "tvm-ffi02", "tvm-ffi10")  # fmt: skip
NOARCH = ("cpu", "cuda", "rocm", "metal", "xpu", "neuron", "tpu", "npu", "universal", "cann")

arch_names = st.builds(
    "{}-{}-{}-{}".format,
    st.sampled_from(FRAMEWORKS),
    st.sampled_from(BACKENDS),
    st.sampled_from(["x86_64", "aarch64"]),
    st.sampled_from(["linux", "darwin", "windows"]),
)
names = st.one_of(arch_names, st.sampled_from(NOARCH).map("torch-{}".format))
broken = st.one_of(
    st.text("torch-sablefi0123cu_x86lnpm", max_size=30),
    st.builds(
        lambda name, index, piece: (
            name[: index % len(name)] + piece + name[index % len(name) + 1 :]
        ),
        names,
        st.integers(0, 60),
        st.sampled_from(["", "-", "1", "x", "--", "cu", "\n", "²", " "]),
    ),
)


def their_name(name: str) -> str | None:
    try:
        return hf.parse_variant(name).variant_str
    except ValueError:
        return None


def our_name(name: str) -> str | None:
    try:
        return str(Variant.parse(name))
    except PackageError:
        return None


@given(names)
def test_names_print_as_they_are_written(name):
    assert our_name(name) == their_name(name) == name


@settings(max_examples=400)
@given(broken)
def test_other_texts_are_names_for_us_where_they_are_for_kernels(name):
    theirs = their_name(name)
    # A name that is written back otherwise names a directory that `kernels` would not find.
    assert our_name(name) == (name if theirs == name else None)


def their_system(system: System) -> dict[str, object]:
    def version(found: Release | None) -> Version | None:
        return Version(str(found)) if found else None

    return {
        "selected_backend": hf_backends.parse_backend(str(system.backend)),
        "cpu": system.cpu,
        "os": system.os,
        "torch_version": version(system.torch),
        "torch_cxx11_abi": system.cxx11 if system.torch else None,
        "tvm_ffi_version": version(system.tvm_ffi),
        "macos_version": version(system.macos),
    }


systems = st.builds(
    lambda backend, cpu, os, torch, tvm, macos, cxx11: replace(
        System.parse(f"{backend}-{cpu}-{os}", torch=torch, tvm_ffi=tvm),
        macos=Release.parse(macos) if macos and os == "darwin" else None,
        cxx11=cxx11 if os == "linux" else None,
    ),
    st.sampled_from(BACKENDS),
    st.sampled_from(["x86_64", "aarch64"]),
    st.sampled_from(["linux", "darwin", "windows"]),
    st.sampled_from(["", "2.9", "2.11", "2.13", "2.14"]),
    st.sampled_from(["", "0.1", "0.2", "1.0"]),
    st.sampled_from(["", "25.6", "26.0", "26.1"]),
    st.booleans(),
)


def near(system: System) -> st.SearchStrategy[str]:
    """Names most of which the system can load: a draw of any names is refused nearly always."""
    tags = "" if system.os != "linux" else ("-cxx11" if system.cxx11 else "-cxx98")
    torch = f"torch{system.torch.major}{system.torch.minor}" if system.torch else "torch213"
    tvm = f"tvm-ffi{system.tvm_ffi.major}{system.tvm_ffi.minor}" if system.tvm_ffi else "tvm-ffi01"
    frameworks = [*FRAMEWORKS, torch, torch + tags, tvm, tvm, "torch-stable-abi29"]
    return st.builds(
        lambda framework, backend: f"{framework}-{backend}-{system.cpu}-{system.os}",
        st.sampled_from(frameworks),
        st.sampled_from([*BACKENDS, str(system.backend), str(system.backend)]),
    )


def order(decisions: object) -> list[str]:
    return [d.variant.variant_str for d in decisions if isinstance(d, hf.VariantAccepted)]


@settings(max_examples=300, deadline=None)
@given(
    systems.flatmap(
        lambda s: st.tuples(
            st.just(s), st.lists(st.one_of(near(s), names), max_size=12, unique=True)
        )
    ),
    st.randoms(),
)
def test_choice_is_that_of_kernels_and_the_same_for_every_order(pair, randomness):
    system, found = pair
    ours = decide(map(Variant.parse, found), system)
    shuffled = list(found)
    randomness.shuffle(shuffled)
    assert decide(map(Variant.parse, shuffled), system) == ours
    accepted = [str(d.variant) for d in ours if d.accepted]
    orders = set()
    for mixed in (found, found[::-1], shuffled):  # equal ones stay in the order given there
        _, trace = hf._resolve_variant_for_system(
            variants=[hf.parse_variant(name) for name in mixed], **their_system(system)
        )
        orders.add(tuple(order(trace)))
    assert {frozenset(o) for o in orders} == {frozenset(accepted)}
    if len(orders) == 1:  # with more, theirs depends on the order of a set
        assert orders == {tuple(accepted)}


def test_choice_is_decided_where_that_of_kernels_hangs_on_the_order_of_a_set():
    system = System.parse("cu130-x86_64-linux", torch="2.13", tvm_ffi="0.1")
    found = ["torch-cuda", "tvm-ffi01-cu130-x86_64-linux"]
    theirs = set()
    for mixed in itertools.permutations(found):
        chosen, _ = hf._resolve_variant_for_system(
            variants=[hf.parse_variant(name) for name in mixed], **their_system(system)
        )
        theirs.add(chosen[0].variant_str)
    assert theirs == set(found)
    for mixed in itertools.permutations(found):
        assert str(decide(map(Variant.parse, mixed), system)[0].variant) == found[1]


@pytest.mark.parametrize(
    ("name", "system", "reason"),
    [
        ("torch-stable-abi214-cpu-x86_64-linux", "cpu-x86_64-linux", "it needs torch 2.14 or newer; torch 2.13 is installed"),
        ("torch211-cxx11-cpu-x86_64-linux", "cpu-x86_64-linux", "it is for torch 2.11; torch 2.13 is installed"),
        ("torch213-cxx98-cpu-x86_64-linux", "cpu-x86_64-linux", "it is for torch of the cxx98 ABI; this torch has the other"),
        ("tvm-ffi01-cpu-x86_64-linux", "cpu-x86_64-linux", "it is for tvm-ffi 0.1; no tvm-ffi is installed"),
        ("torch213-cxx11-cu132-x86_64-linux", "cu130-x86_64-linux", "it needs CUDA 13, from 13.2 on; this system has CUDA 13.0"),
        ("torch213-cxx11-cu126-x86_64-linux", "cu130-x86_64-linux", "it needs CUDA 12; this system has CUDA 13.0"),
        ("torch213-cxx11-cu130-x86_64-linux", "cpu-x86_64-linux", "it is for cu130; this system has cpu"),
        ("torch213-cxx11-cpu-aarch64-linux", "cpu-x86_64-linux", "it is for aarch64 processors; this one is x86_64"),
        ("torch213-cpu-x86_64-windows", "cpu-x86_64-linux", "it is for windows; this is linux"),
        ("torch213-metal-aarch64-darwin", "metal-aarch64-darwin", "Metal kernels need macOS 26; this is no macOS"),
        ("torch-cuda", "cpu-x86_64-linux", "it is for cuda; this system has cpu"),
        ("torch-universal", "cpu-x86_64-linux", None),
        ("torch-npu", "cann82-x86_64-linux", None),
    ],
)  # fmt: skip
def test_reasons(name, system, reason):
    (found,) = decide([Variant.parse(name)], System.parse(system, torch="2.13"))
    assert found.reason == reason


def test_free_threaded_python_refuses_machine_code():
    system = replace(System.parse("cpu-x86_64-linux", torch="2.13"), free_threaded=True)
    found = decide(map(Variant.parse, ["torch213-cxx11-cpu-x86_64-linux", "torch-cpu"]), system)
    assert [str(d.variant) for d in found if d.accepted] == ["torch-cpu"]
    assert found[1].reason == "free-threaded Python before 3.15 has no stable ABI"


def test_this_system_is_what_kernels_sees():
    import platform

    import torch

    system = here()
    assert str(system.backend) == hf._select_backend(None).variant_str
    assert system.torch == Release.of(*map(int, torch.__version__.split(".")[:2]))
    assert system.cpu == platform.machine()
    assert here("cpu").backend == Backend("cpu")
    with pytest.raises(PackageError, match=r"^backend 'rocm' was asked for; this system has cpu"):
        here("rocm")


@pytest.mark.parametrize("text", ["", ".", "2.", "2.x", "-1", "2,1", "1e3", "٢"])
def test_what_is_no_version(text):
    with pytest.raises(ValueError):
        Release.parse(text)


def test_versions_compare_by_number_and_forget_zeros():
    assert Release.parse("2.10") > Release.parse(" 2.9 ")
    assert Release.parse("+2.0.0") == Release.parse("2") == Release.of(2)
    assert (str(Release.parse("2")), str(Release.parse("12.8.1"))) == ("2.0", "12.8.1")
