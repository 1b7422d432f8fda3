"""NVRTC and nvJitLink as tools: results, the cache, options, and what goes wrong, with no driver."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import asdict, replace
from importlib.metadata import version

import pytest

from kernelmill import events
from kernelmill.cache import default_cache
from kernelmill.config import override
from kernelmill.errors import ArgumentError, CompileError, MissingExtraError, ToolchainError
from kernelmill.toolchain import nvidia, nvjitlink, nvrtc, nvrtc_memo
from kernelmill.toolchain.includes import included
from kernelmill.toolchain.nvjitlink import link_cuda
from kernelmill.toolchain.nvrtc import CudaImage, CudaOptions, compile_cuda

pytest.importorskip("cuda.bindings", reason="needs the extra cuda13 or cuda12")

EXTRA = "cuda" + version("cuda-bindings").partition(".")[0]
KERNEL = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }\n'


@pytest.fixture
def own_cache(tmp_path):
    with override(cache_dir=tmp_path / "cache"):
        yield default_cache()


# ----------------------------------------------------------------------------- results


def test_outputs_are_what_they_are_called():
    cubin = compile_cuda(KERNEL, arch="sm_90", output="cubin", cache=False)
    ptx = compile_cuda(KERNEL, arch="sm_90", output="ptx", cache=False)
    ltoir = compile_cuda(KERNEL, arch="sm_90", output="ltoir", cache=False)
    assert cubin.data[:4] == b"\x7fELF"
    assert ptx.data.lstrip().startswith(b"//")
    assert b".target sm_90" in ptx.data
    assert not ptx.data.endswith(b"\0")
    assert ltoir.data[:4] not in (b"\x7fELF", b"//\n/")
    assert cubin.seconds > 0
    assert cubin.producer == nvrtc.nvrtc_version() >= (12, 8)


def test_an_empty_log_is_not_written_into_shared_objects():
    """A buffer of one byte made as b" " * 1 is the interpreter's own b" ", for everybody."""
    assert compile_cuda(KERNEL, cache=False).log == ""
    assert b" "[0] == ord(" ")
    assert bytes([32]) == b" "


def test_ptx_for_a_virtual_architecture():
    image = compile_cuda(KERNEL, arch="compute_80", output="ptx", cache=False)
    assert b".target sm_80" in image.data


def test_two_compiles_make_the_same_bytes():
    first, second = (compile_cuda(KERNEL, arch="sm_80", cache=False) for _ in range(2))
    assert first.data == second.data


def test_template_instances_are_found_by_their_expressions():
    text = "template <class T> __global__ void scale(T* x) { x[0] *= T(2); }"
    image = compile_cuda(text, expressions=("scale<float>", "scale<long>"), cache=False)
    assert image.symbols == {"scale<float>": "_Z5scaleIfEvPT_", "scale<long>": "_Z5scaleIlEvPT_"}
    assert b"_Z5scaleIfEvPT_\0" in image.data


def test_options_reach_the_compiler():
    plain = compile_cuda(KERNEL, cache=False)
    lines = compile_cuda(KERNEL, options=CudaOptions(lineinfo=True), cache=False)
    assert b".debug_line" in lines.data
    assert b".debug_line" not in plain.data
    limited = compile_cuda(KERNEL, output="ptx", options=CudaOptions(maxregcount=40), cache=False)
    assert b".maxnreg" not in limited.data  # it is an option of the assembler
    text = 'static_assert(N == 7, ""); static_assert(__cplusplus == 202002L, "");' + KERNEL
    chosen = CudaOptions(defines=("N=7", "T=float"), std="c++20")
    assert compile_cuda(text, options=chosen, cache=False).data[:4] == b"\x7fELF"


def test_headers_in_memory_come_before_files(tmp_path):
    (tmp_path / "value.h").write_text("#define VALUE 1\n")
    (tmp_path / "other.h").write_text('#include "value.h"\n')
    options = CudaOptions(include_dirs=(tmp_path,))
    text = '#include "other.h"\nstatic_assert(VALUE == {}, "");' + KERNEL
    compile_cuda(text.replace("{}", "1"), options=options, cache=False)
    headers = {"other.h": "#define VALUE 2\n"}
    compile_cuda(text.replace("{}", "2"), options=options, headers=headers, cache=False)


def test_headers_of_the_toolkit_are_found():
    found = nvidia.toolkit_headers()
    assert found is not None
    assert found.found_via == "site-packages"
    text = (
        '#include <cuda_fp16.h>\nextern "C" __global__ void k(__half* x) { x[0] = __hneg(x[1]); }'
    )
    assert compile_cuda(text, cache=False).data[:4] == b"\x7fELF"


# ----------------------------------------------------------------------------- the cache


def test_the_second_compile_comes_from_the_cache(own_cache):
    with events.listen("compile") as seen:
        first = compile_cuda(KERNEL, arch="sm_90", name="twice.cu")
        second = compile_cuda(KERNEL, arch="sm_90", name="twice.cu")
    assert (first.cached, second.cached) == (False, True)
    assert first.data == second.data
    assert second.producer == first.producer
    assert [(e.name, e.device, e.bytes) for e in seen] == [("twice.cu", "cuda", len(first.data))]
    assert own_cache.info().entries == 1


def test_the_cache_keeps_the_names_of_instances(own_cache):
    text = "template <class T> __global__ void scale(T* x) { x[0] *= T(2); }"
    names = [compile_cuda(text, expressions=("scale<float>",)).symbols for _ in range(2)]
    assert names[0] == names[1] == {"scale<float>": "_Z5scaleIfEvPT_"}


@pytest.mark.parametrize(
    "change",
    [
        {"arch": "sm_80"},
        {"output": "ptx"},
        {"options": CudaOptions(contract=True)},
        {"options": CudaOptions(defines=("A=1",))},
        {"name": "other.cu"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_makes_an_image_is_in_its_key(own_cache, change):
    compile_cuda(KERNEL)
    assert not compile_cuda(KERNEL, **change).cached
    assert own_cache.info().entries == 2


def test_a_header_that_changes_is_compiled_again(own_cache, tmp_path):
    header = tmp_path / "factor.h"
    text = '#include "factor.h"\nextern "C" __global__ void k(float* x) { *x *= FACTOR; }'
    options = CudaOptions(include_dirs=(tmp_path,))
    header.write_text("#define FACTOR 2\n")
    first = compile_cuda(text, options=options, output="ptx")
    header.write_text("#define FACTOR 3\n")
    second = compile_cuda(text, options=options, output="ptx")
    assert not second.cached
    assert first.data != second.data


def test_unused_headers_do_not_count(own_cache):
    compile_cuda(KERNEL, headers={"a.h": "int a;"})
    assert compile_cuda(KERNEL, headers={"a.h": "int b;"}).cached


def test_includes_made_by_macros_are_not_cached(own_cache):
    text = '#define FILE "a.h"\n#include FILE\n' + KERNEL
    for _ in range(2):
        assert not compile_cuda(text, headers={"a.h": "// nothing\n"}).cached
    assert own_cache.info().entries == 0


def test_links_are_cached_by_their_images(own_cache):
    operator = compile_cuda("__device__ float op(float x) { return x + 1; }", output="ltoir")
    text = (
        'extern __device__ float op(float); extern "C" __global__ void k(float* x) { *x = op(*x); }'
    )
    caller = compile_cuda(text, output="ltoir")
    first, second = (link_cuda([operator, caller]) for _ in range(2))
    assert (first.cached, second.cached) == (False, True)
    assert first.data == second.data
    other = compile_cuda("__device__ float op(float x) { return x - 1; }", output="ltoir")
    assert not link_cuda([other, caller]).cached


def test_includes_are_followed_through_memory_and_disk(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.h").write_text('#include "b.h"\n#include <cuda_fp16.h>\n')
    (tmp_path / "sub" / "b.h").write_text("// end\n")
    found = included(
        '# include "sub/a.h"\n#include "m.h"\n', {"m.h": '#include "n.h"\n', "n.h": ""}, [tmp_path]
    )
    assert sorted(found.texts) == ["m.h", "n.h"]
    assert sorted(p.rpartition("/")[2] for p in found.files) == ["a.h", "b.h"]
    assert found.outside == ("cuda_fp16.h",)
    assert not found.computed


# ----------------------------------------------------------------------------- faults


def test_an_error_shows_the_line_and_the_log():
    with pytest.raises(CompileError) as caught:
        compile_cuda("\n__global__ void k() { return 1 + nothing; }", name="broken.cu")
    version = ".".join(map(str, nvrtc.nvrtc_version()))
    start = f"NVRTC {version} failed on broken.cu for sm_90: broken.cu line 2: "
    assert caught.value.message == start + 'identifier "nothing" is undefined'
    assert "^" in caught.value.log
    assert "1 error detected" in caught.value.log


def test_macros_do_not_move_lines():
    with pytest.raises(CompileError, match=r"kernel\.cu line 2: "):
        compile_cuda("\nint x = nothing;", options=CudaOptions(defines=("A", "B=2")))


def test_a_missing_header_is_named():
    with pytest.raises(CompileError, match=r'cannot open source file "nowhere\.h"') as caught:
        compile_cuda('#include "nowhere.h"\n')
    assert "include_dirs" in caught.value.hint


def test_an_option_that_does_not_exist_is_named():
    with pytest.raises(CompileError, match="unrecognized option -nonsense"):
        compile_cuda(KERNEL, options=CudaOptions(extra=("-nonsense",)))


def test_a_name_that_is_no_kernel_is_refused():
    with pytest.raises(CompileError, match="scale<float>"):
        compile_cuda(KERNEL, expressions=("scale<float>",))


@pytest.mark.parametrize("arch", ["sm_70", "sm_999", "compute_90", "gfx90a", ""])
def test_unknown_architectures_list_the_known_ones(arch):
    with pytest.raises(ArgumentError, match=r"makes no cubin for .*; it knows sm_75, .*sm_90"):
        compile_cuda(KERNEL, arch=arch)


def test_unknown_outputs_list_the_known_ones():
    with pytest.raises(ArgumentError, match="outputs: cubin, ptx, ltoir"):
        compile_cuda(KERNEL, output="fatbin")
    with pytest.raises(ArgumentError, match="outputs: cubin, ptx"):
        link_cuda([], output="ltoir")
    with pytest.raises(ArgumentError, match="there is nothing to link"):
        link_cuda([])


def test_an_undefined_function_is_named_by_the_linker():
    text = (
        'extern __device__ float op(float); extern "C" __global__ void k(float* x) { *x = op(*x); }'
    )
    caller = compile_cuda(text, output="ltoir")
    with pytest.raises(CompileError, match=r"cannot link whole for sm_90: .*_Z2opf"):
        link_cuda([caller], name="whole")


def test_images_of_a_newer_compiler_are_refused():
    image = CudaImage(b"x", "sm_90", "ltoir", name="op.ltoir", producer=(99, 1))
    with pytest.raises(CompileError, match=r"op\.ltoir is LTO-IR made by version 99\.1") as caught:
        link_cuda([image])
    assert caught.value.hint == "pip install --upgrade 'nvidia-nvjitlink>=99.1'"


def test_what_is_no_image_is_refused_by_the_linker():
    with pytest.raises(CompileError, match="cannot link linked for sm_90"):
        link_cuda([CudaImage(b"nonsense", "sm_90", "cubin", name="x")], cache=False)


_FROM_CACHE = """
import functools
import os
import subprocess
import sys
from dataclasses import asdict, replace
from kernelmill.toolchain.nvrtc import compile_cuda

image = compile_cuda('extern "C" __global__ void remembered() {}')
print(image.cached, image.producer, "cuda.bindings.nvrtc" in sys.modules)
"""


def test_what_is_in_the_cache_loads_no_compiler(tmp_path):
    environment = {**os.environ, "KERNELMILL_CACHE_DIR": str(tmp_path / "cache")}
    version = nvrtc.nvrtc_version()
    for wanted in (f"False {version} True", f"True {version} False"):
        found = subprocess.run(
            [sys.executable, "-c", _FROM_CACHE],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == wanted


def test_a_memo_of_another_library_is_not_believed(monkeypatch):
    known = nvrtc._asked()
    other = replace(known, stamps=(("libnvrtc.so.13", 1, 1),))
    assert nvrtc_memo._read({**asdict(known)}, known.stamps) == known
    assert nvrtc_memo._read({**asdict(other)}, known.stamps) is None
    assert nvrtc_memo._read({"version": 13}, known.stamps) is None
    remembered = functools.cache(lambda _: other)
    monkeypatch.setattr(nvrtc, "_remembered", remembered)
    text = 'extern "C" __global__ void of_another_library() {}'
    first = compile_cuda(text)
    monkeypatch.setattr(nvrtc, "_remembered", lambda _: None)
    assert first.data == compile_cuda(text).data
    assert compile_cuda(text).cached


def test_an_old_compiler_is_refused(monkeypatch):
    monkeypatch.setattr(nvrtc, "nvrtc_version", lambda: (12, 6))
    monkeypatch.setattr(nvrtc, "_remembered", lambda _: None)
    with pytest.raises(ToolchainError, match=r"NVRTC 12\.6 was found in .*; needed is 12\.8"):
        compile_cuda(KERNEL)


@pytest.fixture
def forget_libraries(monkeypatch):
    monkeypatch.setattr(nvrtc, "_remembered", lambda _: None)

    def clear() -> None:
        for function in (
            nvidia.load_library,
            nvidia.toolkit_headers,
            nvrtc.nvrtc_version,
            nvrtc.supported_architectures,
            nvjitlink.nvjitlink_version,
        ):
            function.cache_clear()

    clear()
    yield
    clear()


@pytest.mark.usefixtures("forget_libraries")
def test_absent_bindings_name_the_pip_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    with pytest.raises(MissingExtraError, match="cuda-bindings") as caught:
        compile_cuda(KERNEL)
    assert caught.value.hint == f"pip install 'kernelmill[{EXTRA}]'"


@pytest.mark.usefixtures("forget_libraries")
@pytest.mark.parametrize(
    ("library", "wheel"), [("nvrtc", "nvidia-cuda-nvrtc"), ("nvJitLink", "nvidia-nvjitlink")]
)
def test_an_absent_library_names_wheel_and_pip_line(monkeypatch, library, wheel):
    from cuda import pathfinder

    def not_found(name: str):
        raise pathfinder.DynamicLibNotFoundError(f"lib{name}.so was not found\nmore\n")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", not_found)
    with pytest.raises(
        MissingExtraError, match=f"{library} was not found .wheel {wheel}."
    ) as caught:
        compile_cuda(KERNEL) if library == "nvrtc" else nvjitlink.nvjitlink_version()
    assert caught.value.hint == f"pip install 'kernelmill[{EXTRA}]'"
