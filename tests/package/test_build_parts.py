"""The parts of a build by themselves: capabilities, stubs, objects, wheels' bytes, bills of materials."""

from __future__ import annotations

import ctypes
import os
import subprocess
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmill.config import override
from kernelmill.errors import CacheWarning, CompileError, PackageError, ToolchainError
from kernelmill.package.archs import Arch, gencode, loose_intersection, sorted_archs
from kernelmill.package.build_cache import build_cache
from kernelmill.package.cuda12 import _taken
from kernelmill.package.elf import read_library
from kernelmill.package.includes import closure_of, torch_includes
from kernelmill.package.objects import Objects, Unit, _depends
from kernelmill.package.stubs import stub
from kernelmill.package.wheel import write_archive
from kernelmill.toolchain import find_host_compiler

# ----------------------------------------------------------------------------- the cache


def test_builds_go_on_where_nothing_can_be_kept(tmp_path):
    (tmp_path / "file").write_text("")
    with override(cache_dir=tmp_path / "file" / "cache"):
        with pytest.warns(CacheWarning) as said:
            place = build_cache()
        assert build_cache() == place  # and nothing more is said
    assert place.is_dir()
    assert str(said[0].message) == (
        f"what builds fetch and compile cannot be kept in {tmp_path}/file/cache/build: not a "
        f"directory ({tmp_path}/file/cache/build); this process keeps it in {place} until it ends; "
        "set KERNELMILL_CACHE_DIR to a directory of yours"
    )
    with override(cache_dir=tmp_path / "cache"):
        assert build_cache() == tmp_path / "cache" / "build"


# ----------------------------------------------------------------------------- capabilities

ARCH = st.builds(
    Arch,
    st.integers(7, 12),
    st.integers(0, 9),
    st.sampled_from(["", "", "", "a", "f"]),
    st.booleans(),
).map(str)
PLAIN = st.builds(Arch, st.integers(7, 12), st.integers(0, 9)).map(str)


def by_the_book(asked, served):
    """The definition in words: for each served one the highest asked one that runs on it."""
    found = set()
    wanted = [Arch.parse(text) for text in asked]
    suffixed = [arch for arch in wanted if arch.suffix]
    for target in map(Arch.parse, served):
        own = [arch for arch in suffixed if arch.base == target.base]
        if own:
            found.update(map(str, own))
            continue
        ptx = {arch.base for arch in wanted if arch.ptx and not arch.suffix}
        fits = [
            arch.base
            for arch in wanted
            if not arch.suffix
            and arch.base <= target.base
            and (arch.major == target.major or arch.base in ptx)
        ]
        if fits:
            best = max(fits)
            found.add(f"{best[0]}.{best[1]}{'+PTX' if best in ptx else ''}")
    return found


@given(st.lists(ARCH, max_size=6), st.lists(PLAIN, max_size=6))
def test_the_loose_intersection(asked, served):
    found = loose_intersection(asked, served)
    assert {str(arch) for arch in found} == by_the_book(asked, served)
    assert list(found) == sorted(found)


@given(ARCH)
def test_capabilities_print_as_they_are_read(text):
    assert str(Arch.parse(text)) == text
    (arch,) = sorted_archs([text])
    assert len(gencode([arch])) == 1 + arch.ptx


@pytest.mark.parametrize("text", ["9", "9.0b", "sm_90", "9.00", "", "9.0 +PTX", "-1.0"])
def test_no_capability(text):
    with pytest.raises(PackageError, match="is no compute capability"):
        Arch.parse(text)


# ----------------------------------------------------------------------------- flags for NVRTC


def test_flags_of_nvcc_for_nvrtc():
    flags = ["-std=c++17", "-O3", "-fPIC", "-DA=1", "-Icsrc", "-ffile-prefix-map=/a=b"]
    own = ["--use_fast_math", "-lineinfo", "--expt-relaxed-constexpr", "-O3"]
    assert _taken(flags, own) == ["-std=c++17", "-DA=1", "-Icsrc", "--use_fast_math", "-lineinfo"]
    with pytest.raises(PackageError, match=r"cuda-flags '-rdc=true' is none that NVRTC takes"):
        _taken([], ["-rdc=true"])


def test_both_halves_of_a_source_see_the_same_definitions(tmp_path):
    from pathlib import Path

    from kernelmill.package import cuda12
    from kernelmill.package.nvcc import Cuda

    tools = Cuda("13.0.88", tmp_path, (), (), "path", "nvcc", "")
    cuda = Cuda("12.8.93", tmp_path, (), (), "wheels", "nvrtc", "", (), Path("x.so"), tools)
    own = ["-DQ=1", "--use_fast_math", "-U__CUDA_NO_HALF_OPERATORS__", "-std=c++20"]
    steps = cuda12.commands(
        "a.cu", tmp_path, tmp_path / "a.o", cuda=cuda, host=["g++"], flags=["-std=c++17"],
        device_flags=own, archs=sorted_archs(["8.0"]),
    )  # fmt: skip
    programs = [step.words for step in steps if step.words]
    compiled = [words for words in programs if words[0] == "g++" or "nvrtc_child.py" in words[3]]
    assert len(compiled) == 4
    for words in compiled:
        assert {"-DQ=1", "-U__CUDA_NO_HALF_OPERATORS__", "-std=c++20"} <= set(words)
    (front,) = [words for words in programs if words[0].endswith("cudafe++")]
    assert front[1] == "--c++20"


# ----------------------------------------------------------------------------- what is included


@pytest.fixture
def sources(tmp_path):
    def write(**texts):
        for name, text in texts.items():
            (tmp_path / name.replace("_", ".", 1)).write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("#include <torch/all.h>\n#include <vector>\n#include <ATen/ATen.h>\n", ["torch/all.h", "ATen/ATen.h"]),
        ("// #include <torch/all.h>\n/* \n#include <ATen/ATen.h>\n*/\n", []),
        ("#ifdef X\n#include <torch/all.h>\n#endif\n#include <c10/a.h>\n", ["c10/a.h"]),
        ("#define AT_X\n#include <torch/all.h>\n", []),
        ("#define MINE 1\n#include <torch/all.h>\n", ["torch/all.h"]),
        ("#define restrict\n#include <torch/all.h>\n", []),
        ("#undef NDEBUG\n#include <torch/all.h>\n", []),
        ("#if X\n#define TORCH_ASSERT_NO_OPERATORS\n#endif\n#include <torch/all.h>\n", []),
        ('#include "a.h"\n#include <c10/b.h>\n', ["torch/library.h", "c10/b.h"]),
        ('#include <c10/b.h>\n#include "b.h"\n#include <c10/c.h>\n', ["c10/b.h"]),
        ('#if X\n#include "b.h"\n#endif\n#include <c10/c.h>\n', []),
        ('#include "absent.h"\n#include <c10/c.h>\n', ["c10/c.h"]),
    ],
)  # fmt: skip
def test_headers_of_torch_that_can_be_compiled_before(sources, text, found):
    root = sources(
        x_cpp=text,
        a_h="#ifndef A_H\n#define A_H\n#include <torch/library.h>\n#endif\n",
        b_h="#pragma once\n#define _GLIBCXX_DEBUG\n",
    )
    assert list(torch_includes(root / "x.cpp", [])) == found


def test_what_a_source_may_include(sources, tmp_path):
    root = sources(
        x_cu='#include "a.h"\n#if X\n#include <torch/all.h>\n#endif\nint y = CUDA_KERNEL;\n',
        a_h='#include "a.h"\n#include <vector>\nint z;\n',
        m_cpp="#include HEADER\n",
    )
    found = closure_of(root / "x.cu", [])
    assert found.outside == {"torch/all.h", "vector"}
    assert {"CUDA_KERNEL", "z"} <= found.words
    torch = tmp_path / "framework"
    (torch / "torch").mkdir(parents=True)
    assert not found.reads([torch])
    (torch / "torch/all.h").write_text("")
    assert found.reads([torch])
    assert closure_of(root / "m.cpp", []).reads([])  # a macro may name anything


def test_a_clone_of_cutlass_is_known_by_all_its_headers(tmp_path, monkeypatch):
    from kernelmill.package.cutlass import cutlass_headers

    monkeypatch.setenv("CUTLASS_SRC_DIR", str(tmp_path))
    with pytest.raises(ToolchainError, match="which holds no include/cutlass/version.h"):
        cutlass_headers(["cutlass_4_1"])
    numbers = "#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 1\n#define CUTLASS_PATCH 0\n"
    for name, text in (("include/cutlass/version.h", numbers), ("tools/util/include/a.h", "1")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    first = cutlass_headers(["torch", "cutlass_4_1"])
    assert (first.project, first.version, first.read) == ("cutlass", "4.1.0", "directory")
    (tmp_path / "tools/util/include/a.h").write_text("2")
    assert cutlass_headers(["cutlass_4_1"]).tree != first.tree


def test_headers_that_stand_in_for_others_are_said(tmp_path, monkeypatch):
    from types import SimpleNamespace

    from kernelmill.package import frameworks, recipe
    from kernelmill.package.headers import HeaderSet
    from kernelmill.package.variant import Variant

    def absent(major):
        raise ToolchainError(f"no network for CUDA {major}")

    monkeypatch.setattr(frameworks, "cuda_library_headers", absent)
    variant = Variant.parse("torch213-cxx11-cu130-x86_64-linux")
    with pytest.raises(ToolchainError, match="no network for CUDA 13"):
        frameworks._more("classic", variant, [tmp_path])
    (tmp_path / "cublas_v2.h").write_text("")
    assert frameworks._more("classic", variant, [tmp_path]) == ()

    def notes(read, kind, cuda, more):
        headers = HeaderSet("torch", "2.13.0", tmp_path, "", "", "", read)
        binding = SimpleNamespace(kind=kind, headers=headers, more=more)
        return list(recipe._Maker(tmp_path, "x", binding, None, cuda, (), {}).notes())

    installed = (
        "the headers of torch 2.13.0 are those of the installed package: its wheel could not be "
        "fetched"
    )
    toolkit = "the headers of cuBLAS, cuSOLVER and cuSPARSE are those of the toolkit"
    one = HeaderSet("nvidia-cublas", "13.1.0.3", tmp_path, "", "", "", "ranges")
    assert notes("installed", "classic", "a toolkit", ()) == [installed, toolkit]
    assert notes("ranges", "classic", "a toolkit", (one,)) == []
    assert notes("wheel", "classic", None, ()) == []
    assert notes("installed", "stable", "a toolkit", ()) == [installed]


# ----------------------------------------------------------------------------- stubs


@pytest.mark.parametrize("soname", ["libc10.so", "libcudart.so.13", "libtorch_cuda.so"])
def test_a_library_is_linked_against_a_name(tmp_path, soname):
    path = tmp_path / soname
    path.write_bytes(stub(soname, "x86_64"))
    ctypes.CDLL(str(path))
    (tmp_path / "a.cpp").write_text(
        'extern "C" int there(); extern "C" int here() { return there(); }'
    )
    out = tmp_path / "a.so"
    command = find_host_compiler().command
    subprocess.run(
        [*command, "-shared", "-fPIC", "-o", out, "a.cpp", "-Wl,--no-as-needed", str(path)],
        cwd=tmp_path,
        check=True,
    )
    library = read_library(out)
    assert library.needed[0] == soname
    assert "there" in {symbol.name for symbol in library.undefined()}


# ----------------------------------------------------------------------------- objects


class Compiler:
    """Stands for a compiler: the object is the text of source and header, comments taken off."""

    def __init__(self, root):
        self.root, self.runs = root, []

    def text(self, unit):
        source = (self.root / unit.source).read_text()
        header = (self.root / "a.h").read_text() if "a.h" in source else ""
        lines = (source + header).splitlines()
        return "\n".join(line for line in lines if not line.startswith("//")).encode()

    def compile(self, unit, out, headers):
        self.runs.append(unit.source)
        if "error" in (self.root / unit.source).read_text():
            raise CompileError("no", log="no")
        out.write_bytes(self.text(unit))
        used = " a.h" if "a.h" in (self.root / unit.source).read_text() else ""
        headers.write_text(f"x.o: {unit.source}{used}\n")
        return "said"


@pytest.fixture
def world(tmp_path):
    root = tmp_path / "p"
    root.mkdir()
    (root / "a.cpp").write_text("#include a.h\nint a;\n")
    (root / "a.h").write_text("int h;\n")
    compiler = Compiler(root)

    def store(project=root, identity="g++ 12"):
        compiler.root = project
        return Objects(
            tmp_path / "store",
            project,
            {str(project): "."},
            identity,
            compiler.compile,
            compiler.text,
        )

    return root, compiler, store, tmp_path


def test_what_compiles_and_what_does_not(world):
    root, _compiler, store, work = world
    unit = Unit("a.cpp", ("g++", "-O3", f"-I{root}"))
    first = store().get(unit, work)
    assert (first.how, first.log) == ("compiled", "said")
    assert store().get(unit, work).how == "direct"
    source = root / "a.cpp"
    source.write_text("// more\n" + source.read_text())
    comment = store().get(unit, work)
    assert (comment.how, comment.sha256) == ("compiled", first.sha256)  # its first preprocessing
    source.write_text("// much more\n" + source.read_text())
    assert store().get(unit, work).how == "preprocessed"
    (root / "a.h").write_text("long h;\n")
    changed = store().get(unit, work)
    assert changed.how == "compiled"
    assert changed.sha256 != first.sha256
    (root / "a.h").write_text("int h;\n")
    assert store().get(unit, work).sha256 == first.sha256
    assert store(identity="g++ 13").get(unit, work).how == "compiled"
    assert store().get(Unit("a.cpp", ("g++", "-O2", f"-I{root}")), work).how == "compiled"


def test_objects_are_shared_between_directories(world):
    root, _compiler, store, tmp_path = world
    unit = Unit("a.cpp", ("g++", f"-ffile-prefix-map={root}=."))
    store().get(unit, tmp_path)
    other = tmp_path / "another" / "place"
    other.parent.mkdir()
    import shutil

    shutil.copytree(root, other)
    moved = Unit("a.cpp", ("g++", f"-ffile-prefix-map={other}=."))
    assert store(other).get(moved, tmp_path).how == "direct"


def test_an_object_that_is_gone_is_made_again(world):
    _, _compiler, store, work = world
    unit = Unit("a.cpp", ("g++",))
    made = store().get(unit, work)
    store().path(made.sha256).unlink()
    assert store().get(unit, work).how == "compiled"
    for entry in (work / "store/direct").rglob("*.json"):
        entry.write_text("{broken")
    assert store().get(unit, work).how in ("compiled", "preprocessed")


def test_a_failure_is_not_kept(world):
    root, compiler, store, work = world
    (root / "b.cpp").write_text("error")
    for _ in range(2):
        with pytest.raises(CompileError):
            store().get(Unit("b.cpp", ("g++",)), work)
    assert compiler.runs == ["b.cpp", "b.cpp"]
    with pytest.raises(CompileError, match=r"the source c\.cpp cannot be read"):
        store().get(Unit("c.cpp", ("g++",)), work)


def test_what_was_not_used_for_longest_goes_first(world):
    root, _compiler, store, work = world
    made = []
    for index in range(4):
        (root / f"{index}.cpp").write_text(f"int {index}{'x' * 100};\n")
        made.append(store().get(Unit(f"{index}.cpp", ("g++",)), work))
        os.utime(store().path(made[-1].sha256), (index, index))
    store().get(made[0].unit, work)  # used again
    assert store().trim(250) == 2
    there = [store().path(one.sha256).exists() for one in made]
    assert there == [True, False, False, True]


def test_dependency_files():
    text = "a.o: b.cpp \\\n  c\\ d.h $$e.h /usr/x.h\n"
    assert _depends(text) == ["b.cpp", "c d.h", "$e.h", "/usr/x.h"]
    assert _depends("C\\:x.o : a") == ["a"]


# ----------------------------------------------------------------------------- archives


@given(st.dictionaries(st.from_regex(r"p/[a-z]{1,8}\.py", fullmatch=True), st.binary(max_size=50)))
def test_wheels_of_the_same_files_have_the_same_bytes(files):
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as place:
        paths = [Path(place) / "a.whl", Path(place) / "b.whl"]
        for path, order in zip(paths, (sorted(files), sorted(files, reverse=True)), strict=True):
            ordered = {name: files[name] for name in order}
            write_archive(path, ordered, "p", "1.0", tag="py3-none-any", facts=[])
        assert paths[0].read_bytes() == paths[1].read_bytes()
        with zipfile.ZipFile(paths[0]) as archive:
            assert archive.testzip() is None
            assert {n: archive.read(n) for n in files} == files
            assert archive.namelist()[-1] == "p-1.0.dist-info/RECORD"
