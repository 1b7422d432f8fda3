"""What `kernelmill check` finds, each fault made on purpose in a variant that was sound before."""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess

import pytest
from click.testing import CliRunner

from kernelmill.cli import main
from kernelmill.errors import PackageError
from kernelmill.package import check_run
from kernelmill.package.build import Options, build
from kernelmill.package.check import check_variant, find_variants
from kernelmill.package.check_reproducible import differences, reproduce
from kernelmill.package.check_torch import _declared
from kernelmill.package.digest import hash_variant
from kernelmill.package.elf import read_library
from kernelmill.package.fatbin import images_of
from kernelmill.package.matrix import machine_entries, read_project
from kernelmill.package.scaffold import plan, write
from kernelmill.package.system import here
from kernelmill.toolchain import find_host_compiler

NAME = "torch-stable-abi210-cpu-x86_64-linux"
TVM = "tvm-ffi01-cpu-x86_64-linux"


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project of the scaffold, built for this machine."""
    root = tmp_path_factory.mktemp("check") / "grey"
    write(plan("grey", backends=("cpu",)), root)
    made = read_project(root)
    build(made, machine_entries(made), Options(jobs=2, unique="0123abc"))
    return root


@pytest.fixture
def variant(project, tmp_path):
    """A copy of its variant, to be spoiled."""
    return shutil.copytree(project / "build" / NAME, tmp_path / "build" / NAME)


def compiled(place, text, *flags, language="c++"):
    """Compile a text as a shared library."""
    source = place.parent / "source.cpp"
    source.write_text(text)
    command = [*find_host_compiler().command, "-shared", "-fPIC", "-x", language, str(source)]
    subprocess.run([*command, *flags, "-o", str(place)], check=True, capture_output=True)
    return place


def replaced(variant, text, *flags):
    """Put another library in the place of the variant's, with the digests mended."""
    (library,) = variant.glob("*.so")
    compiled(library, text, *flags)
    mend(variant)
    return variant


def mend(variant):
    (variant.parent / "source.cpp").unlink(missing_ok=True)
    (variant / "source.cpp").unlink(missing_ok=True)
    path = variant / "metadata.json"
    found = json.loads(path.read_text())
    found["digest"] = hash_variant(variant).to_json()
    path.write_text(json.dumps(found))


def findings(variant, *, run=False, rule=None, manylinux="2_28"):
    report = check_variant(variant, here(), run=run, manylinux=manylinux)
    return [(f.level, f.message) for f in report.findings if rule in (None, f.rule)]


INIT = 'extern "C" void* PyInit__grey_cpu_0123abc() { return 0; }\n'


# ----------------------------------------------------------------------------- nothing wrong


def test_a_build_of_ours_passes(project):
    (found,) = find_variants(project)
    report = check_variant(found, here())
    assert report.passed
    assert report.findings == ()
    assert report.facts["manylinux"] in ("manylinux_2_17", "manylinux_2_24")
    assert report.facts["exports"] == "1"


def test_where_variants_are_looked_for(project, tmp_path):
    (found,) = find_variants(project)
    assert find_variants(project / "build") == find_variants(found) == (found,)
    (tmp_path / "cmake-kernelmill").mkdir()
    (tmp_path / "cmake-kernelmill" / "metadata.json").write_text("{}")  # what CMake is given
    with pytest.raises(PackageError, match="there are no built variants in"):
        find_variants(tmp_path)


def test_a_variant_for_another_system_is_read_but_not_loaded(variant):
    other = variant.rename(variant.parent / NAME.replace("210", "299"))
    assert findings(other, run=True) == [
        (
            "note",
            f"it was not loaded: it needs torch 2.99 or newer; torch {here().torch} is installed",
        )
    ]


# ----------------------------------------------------------------------------- files


def test_bytecode(variant):
    (variant / "__pycache__").mkdir()
    (variant / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"")
    assert findings(variant) == [("error", "bytecode is packed: __pycache__/x.cpython-311.pyc")]


def test_a_changed_file(variant):
    (variant / "__init__.py").write_text("# changed\n")
    (found,) = findings(variant, rule="digest")
    assert found[1].startswith("__init__.py: expected ")


def test_a_file_too_many_and_one_too_few(variant):
    (variant / "extra.txt").write_text("")
    (variant / "sbom.cdx.json").unlink()
    assert findings(variant, rule="digest") == [
        ("error", "extra.txt: unknown"),
        ("error", "sbom.cdx.json: missing"),
    ]


def test_metadata_that_is_absent_or_wrong(variant):
    path = variant / "metadata.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"backend": {"type": "cuda"}, "python-depends": ["numpy"]}))
    found = findings(variant)
    assert ("error", "the directory is for cpu, metadata.json says cuda") in found
    assert any(text.startswith("python-depends names numpy; `kernels` knows") for _, text in found)
    path.write_text("{}")
    assert findings(variant, rule="metadata")[0][0] == "error"
    path.unlink()
    assert "has no metadata.json" in findings(variant, rule="metadata")[0][1]


def test_a_variant_as_they_were_built_before(variant):
    """Without a digest, and with the Python side in a directory of the kernel's name."""
    path = variant / "metadata.json"
    facts = json.loads(path.read_text())
    del facts["digest"]
    path.write_text(json.dumps(facts))
    (variant / "grey").mkdir()
    (variant / "__init__.py").rename(variant / "grey" / "__init__.py")
    assert findings(variant) == [
        ("warning", "the Python side lies in grey/, as it did before metadata.json"),
        ("warning", "metadata.json holds no digest"),
    ]
    assert check_variant(variant, here(), run=False).passed


def test_a_library_of_another_name(variant):
    (library,) = variant.glob("*.so")
    library.rename(variant / "other.abi3.so")
    assert findings(variant, rule="identifier") == [
        (
            "error",
            "the library is other.abi3.so, but metadata.json says the id is _grey_cpu_0123abc",
        )
    ]


def test_a_missing_library_and_a_missing_start(variant):
    (library,) = variant.glob("*.so")
    library.unlink()
    (variant / "__init__.py").unlink()
    found = findings(variant)
    assert ("error", f"{NAME} has machine code by its name, but holds no library") in found
    assert ("error", "__init__.py is missing") in found


def test_a_link_out_of_the_variant(variant):
    (variant / "data.json").symlink_to("/etc/passwd")
    assert ("error", "data.json is a link out of the variant: /etc/passwd") in findings(variant)


# ----------------------------------------------------------------------------- the library


def test_symbols_that_are_too_new(variant):
    replaced(variant, INIT + "#include <math.h>\nextern double x; double f() { return exp(x); }")
    (found,) = findings(variant, rule="manylinux", manylinux="2_28")
    assert found == (
        "error",
        "it needs GLIBC_2.29 (exp), which manylinux_2_28 does not have",
    )
    assert findings(variant, rule="manylinux", manylinux="2_31") == []
    report = check_variant(variant, here(), run=False)
    assert report.facts["manylinux"] == "manylinux_2_31"
    (found,) = [f for f in report.findings if f.rule == "manylinux"]
    assert found.breaks == "loading fails on systems older than manylinux_2_31"


@pytest.mark.parametrize(
    ("flags", "text", "rule", "message"),
    [
        (["-Wl,-z,execstack"], "", "segments", "it asks for an executable stack"),
        (
            ["-Wl,-z,notext"],
            '__asm__(".text\\n.quad stdout\\n");\n',
            "segments",
            "its code is changed while it is loaded (text relocations)",
        ),
        (["-Wl,-rpath,/home/me/lib"], "", "rpath", "it looks for libraries in /home/me/lib"),
        (
            [],
            ("template <class T> struct A { inline static T value = 0; };\n"
            "int* f() { return &A<int>::value; }\n"),
            "symbols",
            "1 symbols are unique in a process: _ZN1AIiE5valueE",
        ),
        ([], "void helper() {}", "symbols", "1 symbols are visible that nobody calls: _Z6helperv"),
    ],
)  # fmt: skip
def test_the_shape_of_the_library(variant, flags, text, rule, message):
    replaced(variant, INIT + text, *flags)
    assert message in [said for _, said in findings(variant, rule=rule)]


def test_a_segment_that_is_writable_and_executable(variant):
    (library,) = variant.glob("*.so")
    data = bytearray(library.read_bytes())
    start, size, count = struct.unpack_from("<Q", data, 32) + struct.unpack_from("<HH", data, 54)
    for at in range(start, start + size * count, size):
        kind, flags = struct.unpack_from("<II", data, at)
        if kind == 1 and flags & 1:
            struct.pack_into("<I", data, at + 4, flags | 2)
    library.write_bytes(data)
    mend(variant)
    assert findings(variant) == [("error", "a segment is writable and executable")]


def test_symbols_of_python(variant):
    pytest.importorskip("abi3info")
    uses = (
        "PyLong_FromLong PyUnicode_AsUTF8AndSize PyObject_Vectorcall _PyObject_GetDictPtr".split()
    )
    declared = "".join(f'extern "C" int {name}();\n' for name in uses)
    calls = " + ".join(f"{name}()" for name in uses)
    replaced(variant, f"{INIT}{declared}int f() {{ return {calls}; }}")
    assert findings(variant, rule="abi3") == [
        ("error", "_PyObject_GetDictPtr is not in Python's stable ABI"),
        ("error", "PyObject_Vectorcall is in Python's stable ABI since 3.12"),
        ("error", "PyUnicode_AsUTF8AndSize is in Python's stable ABI since 3.10"),
    ]


def test_a_module_that_cannot_be_imported(variant):
    replaced(variant, "")
    assert findings(variant, rule="abi3") == [("error", "it exports no PyInit__grey_cpu_0123abc")]


def test_torch_symbols_in_a_stable_library(variant):
    text = "namespace c10 { void warn(); }\nvoid f() { c10::warn(); }"
    replaced(variant, INIT + text)
    assert findings(variant, rule="torch-stable-abi") == [
        ("error", "it uses torch's C++: _ZN3c104warnEv")
    ]


def test_functions_that_are_newer_than_the_target(variant):
    # In the headers of torch since 2.13, as the tests' torch has them.
    name = "torch_stream_native_handle"
    text = f'extern "C" int {name}();\nint f() {{ return {name}(); }}'
    from kernelmill.package import check_torch

    since = check_torch.shim_versions(check_torch._torch_include())
    newest = max(since, key=lambda function: (since[function], function))
    text = text.replace(name, newest)
    replaced(variant, INIT + text)
    version = since[newest]
    assert str(version) > "2.10"
    assert findings(variant, rule="torch-stable-abi") == [
        ("error", f"{newest} came with torch {version}; the variant is for 2.10")
    ]


def test_versions_in_headers_of_torch():
    text = """
#ifndef A
#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_10_0
AOTI_TORCH_EXPORT AOTITorchError torch_new(int);
#ifdef USE_CUDA
AOTI_TORCH_EXPORT AOTITorchError torch_gpu(int);
#endif
#endif
AOTI_TORCH_EXPORT AOTITorchError aoti_torch_old(
    int);
#endif
"""
    assert {name: str(version) for name, version in _declared(text)} == {
        "torch_new": "2.10",
        "torch_gpu": "2.10",
        "aoti_torch_old": "2.9",
    }


def test_undefined_symbols_of_a_classic_library(variant):
    version = here().torch
    name = f"torch{version.major}{version.minor}-cxx11-cpu-x86_64-linux"
    classic = variant.rename(variant.parent / name)
    text = "namespace c10 { void warn(int); struct Gone { static void ever(); }; }\n"
    replaced(classic, INIT + text + "void f() { c10::Gone::ever(); }")
    assert findings(classic, rule="undefined-symbols") == [
        ("error", f"torch {version} has no _ZN3c104Gone4everEv")
    ]
    other = classic.rename(classic.parent / "torch211-cxx11-cpu-x86_64-linux")
    assert findings(other, rule="undefined-symbols") == [
        ("note", "its symbols were not compared: torch 2.11 is not installed here")
    ]


def test_another_processor(variant):
    other = variant.rename(variant.parent / NAME.replace("x86_64", "aarch64"))
    assert findings(other, rule="machine") == [
        ("error", "the directory is for aarch64, the library for x86_64")
    ]


# ----------------------------------------------------------------------------- GPU code


def fat_binary(*images):
    """Return a fat binary with entries of these kinds, architectures and flags."""
    entries = b"".join(
        struct.pack("<HHIQIIHHIIIQQQ", kind, 0x101, 64, 16, 0, 64, 0, 1, arch, 0, 0, flags, 0, 0)
        + bytes(16)
        for kind, arch, flags in images
    )
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def with_gpu_code(variant, *images):
    numbers = ",".join(map(str, fat_binary(*images)))
    place = '__attribute__((section(".nv_fatbin"), aligned(8), used))'
    return replaced(variant, f"{INIT}{place} static const unsigned char code[] = {{{numbers}}};")


@pytest.mark.parametrize(
    ("said", "images", "messages"),
    [
        (["8.0", "9.0"], [(2, 80, 0), (2, 90, 0)], []),
        (["8.0", "9.0a", "12.0+PTX"], [(2, 80, 0), (2, 90, 1 << 20), (2, 120, 0), (1, 120, 0)], []),
        (
            ["8.0", "9.0"],
            [(2, 80, 0), (2, 100, 1 << 21)],
            [
                ("error", "metadata.json names 9.0, but there is no code for it"),
                ("warning", "there is code for 10.0f, which metadata.json does not name"),
            ],
        ),
        (
            ["8.0+PTX"],
            [(2, 80, 0)],
            [("error", "metadata.json promises PTX of 8.0; there is none")],
        ),
    ],
)  # fmt: skip
def test_architectures(variant, said, images, messages):
    cuda = variant.rename(variant.parent / NAME.replace("cpu", "cu130"))
    path = cuda / "metadata.json"
    facts = json.loads(path.read_text())
    path.write_text(json.dumps(facts | {"backend": {"type": "cuda", "archs": said}}))
    with_gpu_code(cuda, *images)
    assert findings(cuda, rule="gpu") == messages


def test_a_fat_binary_that_leads_nowhere_ends(variant):
    header = struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0)  # its entries would begin at itself
    numbers = ",".join(map(str, header + fat_binary((2, 90, 0))))
    place = '__attribute__((section(".nv_fatbin"), aligned(8), used))'
    replaced(variant, f"{INIT}{place} static const unsigned char code[] = {{{numbers}}};")
    (library,) = variant.glob("*.so")
    assert images_of(library) == (("cubin", "sm_90"),)


def test_gpu_code_in_a_variant_without_a_gpu(variant):
    with_gpu_code(variant, (2, 90, 0))
    (library,) = variant.glob("*.so")
    assert images_of(library) == (("cubin", "sm_90"),)
    assert findings(variant, rule="gpu") == [("error", "it holds GPU code for sm_90")]


# ----------------------------------------------------------------------------- the Python side


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('torch.library.custom_op("grey::f", mutates_args=())(f)', "custom_op('grey::f')"),
        ('@torch.library.register_fake("grey::f")\ndef g(x): ...', "register_fake('grey::f')"),
        ('from torch.library import triton_op\ntriton_op("grey::f", mutates_args={})(f)', "triton_op('grey::f')"),
        ('torch.library.Library("grey", "DEF")', "Library('grey')"),
        ('torch.library.custom_op(f"grey::{name}", mutates_args=())(f)', """custom_op("f'grey::{name}'")"""),
        ('torch.library.custom_op(add_op_namespace_prefix("f"), mutates_args=())(f)', ""),
        ("@f.register_fake\ndef g(x): ...", ""),
        ('thing.impl("grey")', ""),
    ],
)  # fmt: skip
def test_registrations_without_the_namespace_of_the_build(variant, line, found):
    (variant / "more.py").write_text(line + "\n")
    messages = [
        f.message
        for f in check_variant(variant, here(), run=False).findings
        if f.rule == "registration"
    ]
    assert messages == (
        [f"{found} names an operator without the namespace of this build"] if found else []
    )


def test_a_file_that_is_no_python(variant):
    (variant / "more.py").write_text("def\n")
    assert findings(variant, rule="python")[0][1].startswith("it is no Python: ")


# ----------------------------------------------------------------------------- loading


def rebuilt(project, tmp_path, old, new):
    """Build the project anew with a change in its binding."""
    root = shutil.copytree(project, tmp_path / "changed", ignore=shutil.ignore_patterns("build"))
    path = root / "torch-ext" / "binding.cpp"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    made = read_project(root)
    build(made, machine_entries(made), Options(jobs=2, unique="0123abc"))
    return root / "build" / NAME


def test_a_missing_symbol_is_named(variant):
    replaced(variant, INIT + "void km_missing(); void f() { km_missing(); }")
    (found,) = findings(variant, run=True, rule="loading")
    assert found[0] == "error"
    assert "loading the library failed: OSError" in found[1]
    assert "undefined symbol: _Z10km_missingv" in found[1]


@pytest.mark.parametrize(
    ("ending", "said"),
    [("__builtin_abort();", "was ended by SIGABRT"),
     ("std::exit(7);", "ended itself with status 7")],
)  # fmt: skip
def test_an_operator_that_ends_the_process(project, tmp_path, ending, said):
    old = "void check(const Tensor& image, const Tensor& grey) {\n"
    variant = rebuilt(project, tmp_path, old, f"{old}  if (image.dim() != 3) {ending}\n")
    (found,) = findings(variant, run=True, rule="errors")
    assert found[0] == "error"
    assert f"the process {said}" in found[1]
    assert "in a wrong call of _grey_cpu_0123abc::grey" in found[1]


def test_an_operator_in_a_namespace_of_its_own(project, tmp_path):
    old = "REGISTER_EXTENSION(TORCH_EXTENSION_NAME)"
    new = (
        'STABLE_TORCH_LIBRARY(everybodys, library) {\n  library.def("grey(Tensor image) -> ()");\n}\n'
        + old
    )
    variant = rebuilt(project, tmp_path, old, new)
    assert findings(variant, run=True, rule="registration") == [
        ("error", "loading it registers everybodys::grey, outside of its own namespace")
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [("raise RuntimeError('not today')", "RuntimeError: not today"), ("exit(3)", "SystemExit: 3")],
)
def test_an_import_that_fails(variant, text, said):
    (variant / "__init__.py").write_text(text + "\n")
    assert findings(variant, run=True, rule="loading") == [
        ("error", f"importing the kernel failed: {said}")
    ]


def test_what_does_not_end_is_stopped(variant, monkeypatch):
    monkeypatch.setattr(check_run, "_SECONDS", 0.5)
    monkeypatch.setattr(check_run, "_CHILD", variant / "child.py")
    step = '{"what": "begin", "step": "import"}'
    (variant / "child.py").write_text(
        f"print(chr(30) + {step!r}, flush=True)\nimport time\ntime.sleep(60)"
    )
    (found,) = findings(variant, run=True, rule="loading")
    # A busy machine may not have begun within that time: then nothing was said.
    assert found in [
        ("error", f"{doing} did not end within 0.5 s")
        for doing in ("importing the kernel", "starting Python")
    ]


# ----------------------------------------------------------------------------- reproducible


def test_two_builds_are_the_same_bytes(project):
    assert reproduce(project, project / "build" / NAME) == ()


def test_a_difference_names_its_section(variant, tmp_path):
    other = shutil.copytree(variant, tmp_path / "other")
    (library,) = other.glob("*.so")
    offset, size = read_library(library).sections[".rodata"]
    data = bytearray(library.read_bytes())
    data[offset + size - 1] ^= 1
    library.write_bytes(data)
    (other / "extra").write_text("")
    assert list(differences(variant, other)) == [
        (library.name, f"{library.name} in .rodata"),
        ("extra", "extra is in one of them only"),
    ]


# ----------------------------------------------------------------------------- strangers' files


def test_damaged_libraries_end_in_one_error(project, tmp_path):
    (library,) = (project / "build" / NAME).glob("*.so")
    whole = library.read_bytes()
    place = tmp_path / "damaged.so"
    draw = random.Random(1)
    read = 0
    for _ in range(300):
        data = bytearray(whole)
        kind = draw.random()
        if kind < 0.3:
            del data[draw.randrange(len(data)) :]
        else:
            # The headers decide most; bytes anywhere else change little.
            for _ in range(draw.randrange(1, 6)):
                at = draw.randrange(64) if kind < 0.6 else len(data) - 1 - draw.randrange(2000)
                data[at] = draw.randrange(256)
        place.write_bytes(data)
        try:
            images_of(place)
            read += 1
        except PackageError:
            continue
    assert 0 < read < 300


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"MZ" + bytes(100), b"\x7fELF\x01\x01\x01" + bytes(100)]
)
def test_what_is_no_library(tmp_path, data):
    (tmp_path / "x.so").write_bytes(data)
    with pytest.raises(PackageError, match="is no ELF library that can be read"):
        read_library(tmp_path / "x.so")


# ----------------------------------------------------------------------------- the verb


def invoke(*arguments):
    return CliRunner().invoke(main, list(arguments), prog_name="kernelmill")


def test_the_verb_says_what_breaks_for_whom(variant):
    (variant / "__pycache__").mkdir()
    (variant / "__pycache__" / "x.pyc").write_bytes(b"")
    done = invoke("check", "--no-run", str(variant))
    assert done.exit_code == 1
    assert (
        "  error: bytecode: bytecode is packed: __pycache__/x.pyc (__pycache__/x.pyc)\n"
        in done.stdout
    )
    assert "    breaks: builds are no longer identical, and other versions of" in done.stdout
    assert done.stderr == f"error: 1 of 1 variants break: {NAME}\n"


def test_the_verb_prints_json(project):
    done = invoke("check", "--no-run", "--json", str(project))
    assert done.exit_code == 0
    (found,) = json.loads(done.stdout)
    assert (found["variant"], found["passed"], found["findings"]) == (NAME, True, [])
    assert found["facts"]["exports"] == "1"
