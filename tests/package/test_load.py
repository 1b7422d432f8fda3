"""The loader: what is imported was verified, what was not is not, and nothing half-loaded stays."""

from __future__ import annotations

import builtins
import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest

from kernel_packages import write_metadata, write_project, write_variant
from kernelmill import hub
from kernelmill.config import override
from kernelmill.errors import IntegrityError, KernelImportError, PackageError
from kernelmill.package import finder, load
from kernelmill.package.choice import local_variant


@pytest.fixture(autouse=True)
def forgotten(tmp_path):
    """Each test starts with nothing loaded, and a cache of its own."""
    with override(cache_dir=tmp_path / "cache"):
        yield
    for name in list(load._state.kernels):
        finder.forget(name)
    load._state.kernels.clear()
    load._state.claims.clear()


def names_of(kernel):
    return [m for m in sys.modules if m == kernel or m.startswith(f"{kernel}.")]


def test_a_project_a_build_directory_and_a_variant_load(tmp_path):
    root = write_project(tmp_path / "p")
    one = hub.get_local_kernel(root)
    assert one.twice(21) == 42
    assert one.half(3) == 1.5
    assert one.add_op_namespace_prefix("f") == "_twice_cpu_0000001::f"
    assert hub.get_local_kernel(root / "build") is one
    assert hub.get_local_kernel(str(root / "build/torch-universal")) is one
    assert one.__name__.startswith("_twice_cpu_0000001__")


def test_the_same_bytes_elsewhere_are_the_same_module(tmp_path):
    root = write_project(tmp_path / "p")
    shutil.copytree(root, tmp_path / "q")
    assert hub.get_local_kernel(root) is hub.get_local_kernel(tmp_path / "q")
    assert len(hub.loaded()) == 1


def test_two_versions_live_side_by_side(tmp_path):
    one = hub.get_local_kernel(write_project(tmp_path / "1", semantic="1.0.0"))
    two = hub.get_local_kernel(write_project(tmp_path / "2", semantic="2.0.0", version=2))
    assert (one.VERSION, two.VERSION) == ("1.0.0", "2.0.0")
    assert one.half is not two.half
    assert importlib.import_module(one.__name__) is one
    assert {k.module.VERSION for k in hub.loaded()} == {"1.0.0", "2.0.0"}


def test_two_of_one_id_without_operators_live_side_by_side_as_well(tmp_path):
    """Hugging Face's loader lets the second take the first one's place in sys.modules."""
    one = hub.get_local_kernel(write_project(tmp_path / "1", id="_same_1", semantic="1.0.0"))
    two = hub.get_local_kernel(write_project(tmp_path / "2", id="_same_1", semantic="1.0.1"))
    assert (one.VERSION, two.VERSION) == ("1.0.0", "1.0.1")


OPERATOR = """
import torch
library = torch.library.Library("_clash_1", "DEF")
library.define("f(int x) -> int")
"""


def test_one_namespace_of_torch_ops_is_given_once(tmp_path):
    pytest.importorskip("torch")
    files = {"__init__.py": OPERATOR}
    one = hub.get_local_kernel(write_project(tmp_path / "1", id="_clash_1", files=files))
    other = write_project(tmp_path / "2", id="_clash_1", files={"__init__.py": OPERATOR + "#"})
    with pytest.raises(PackageError) as caught:
        hub.get_local_kernel(other)
    text = str(caught.value)
    assert "registers its operators as torch.ops._clash_1, which the kernel loaded from" in text
    assert str(tmp_path / "1") in text
    assert hub.get_local_kernel(tmp_path / "1") is one
    one.library._destroy()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda v: (v / "__init__.py").write_text("raise AssertionError('imported')"), "__init__.py: expected"),
        (lambda v: (v / "extra.py").write_text(""), "extra.py: unknown"),
        (lambda v: (v / "parts/__init__.py").unlink(), "parts/__init__.py: missing"),
        (lambda v: (v / "data.bin").write_bytes(b""), "data.bin: expected"),
        (lambda v: (v / "x").symlink_to("/etc/hostname"), "is a link out of its repository"),
        (lambda v: (v / "x").symlink_to("parts"), "which is not a file"),
    ],
)  # fmt: skip
def test_a_tampered_file_is_refused_before_import(tmp_path, change, text):
    variant = write_project(tmp_path) / "build/torch-universal"
    change(variant)
    with pytest.raises(IntegrityError, match=text):
        hub.get_local_kernel(tmp_path)
    assert not hub.loaded()


def test_a_wrong_digest_loads_in_kernels_and_not_here(tmp_path):
    kernels = pytest.importorskip("kernels")
    variant = write_project(tmp_path) / "build/torch-universal"
    (variant / "data.bin").write_bytes(b"changed")
    kernels.get_local_kernel(tmp_path)
    with pytest.raises(IntegrityError):
        hub.get_local_kernel(tmp_path)


def test_bytecode_beside_the_sources_is_never_read(tmp_path):
    """It has no digest, and Python would prefer it."""
    variant = write_project(tmp_path) / "build/torch-universal"
    evil = tmp_path / "evil.py"
    evil.write_text("raise AssertionError('bytecode was read')")
    import py_compile

    tag = sys.implementation.cache_tag
    for target in (f"__pycache__/__init__.{tag}.pyc", f"parts/__pycache__/__init__.{tag}.pyc", "hidden.pyc"):  # fmt: skip
        (variant / target).parent.mkdir(exist_ok=True)
        py_compile.compile(
            str(evil), str(variant / target), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )  # fmt: skip
    kernel = hub.get_local_kernel(tmp_path)
    assert kernel.twice(1) == 2
    with pytest.raises(ModuleNotFoundError, match="among the verified files"):
        importlib.import_module(f"{kernel.__name__}.hidden")
    assert not list(variant.glob("**/__pycache__/_ops*")), "an import writes nothing there"


def test_a_file_that_changes_between_the_check_and_the_import_is_refused(tmp_path):
    late = "import os\nfrom pathlib import Path\nPath(__file__).with_name('late.py').write_text('x = 1')\nfrom . import late\n"
    write_project(tmp_path, files={"__init__.py": late, "late.py": "x = 0"})
    with pytest.raises(KernelImportError, match="was changed after it was verified") as caught:
        hub.get_local_kernel(tmp_path)
    assert isinstance(caught.value.__cause__, IntegrityError)
    assert not hub.loaded()


def test_a_file_that_appears_after_the_check_cannot_be_imported(tmp_path):
    late = "from pathlib import Path\nPath(__file__).with_name('late.py').write_text('x = 1')\nfrom . import late\n"
    write_project(tmp_path, files={"__init__.py": late})
    with pytest.raises(KernelImportError, match="raised ImportError|ModuleNotFoundError"):
        hub.get_local_kernel(tmp_path)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("1 / 0", "raised ZeroDivisionError while it was imported: division by zero"),
        ("import sys; sys.exit(3)", r"called sys.exit\(3\) while it was imported; nothing of it stays"),
        ("def f(:", "raised SyntaxError while it was imported"),
        ("import no_such_thing_anywhere", "raised ModuleNotFoundError"),
        ("raise BaseException('odd')", None),
    ],
)  # fmt: skip
def test_an_import_that_fails_leaves_nothing(tmp_path, body, text):
    write_project(tmp_path, files={"__init__.py": f"from . import parts\n{body}\n"})
    before = set(sys.modules)
    with pytest.raises(KernelImportError if text else BaseException, match=text or "odd"):
        hub.get_local_kernel(tmp_path)
    assert not [m for m in set(sys.modules) - before if "_twice_" in m]
    assert not hub.loaded()
    assert not load._state.claims


def test_after_a_failure_the_next_try_starts_afresh(tmp_path):
    flag = tmp_path / "flag"
    write_project(
        tmp_path / "p",
        files={"__init__.py": f"import pathlib\npathlib.Path({str(flag)!r}).read_text()\nok = 1\n"},
    )
    with pytest.raises(KernelImportError, match="raised FileNotFoundError"):
        hub.get_local_kernel(tmp_path / "p")
    flag.write_text("")
    assert hub.get_local_kernel(tmp_path / "p").ok == 1


def test_an_import_that_does_not_end_is_named_and_can_be_stopped(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(load, "SLOW_SECONDS", 0.05)
    # It lasts until somebody has been told that it does, and interrupts itself then.
    monkeypatch.setattr(builtins, "said", caplog.handler.records, raising=False)
    body = """
import _thread, builtins, time
end = time.monotonic() + 60
while not any("Ctrl-C" in record.getMessage() for record in builtins.said):
    assert time.monotonic() < end
    time.sleep(0.01)
_thread.interrupt_main()
time.sleep(30)
"""
    write_project(tmp_path, files={"__init__.py": body})
    with caplog.at_level(logging.WARNING, "kernelmill"), pytest.raises(KeyboardInterrupt):
        hub.get_local_kernel(tmp_path)
    assert "importing the kernel twice" in caplog.text
    assert "Ctrl-C stops it" in caplog.text
    assert not hub.loaded()


def test_many_threads_import_once(tmp_path):
    body = "import time, builtins\ntime.sleep(0.05)\nbuiltins.counted = getattr(builtins, 'counted', 0) + 1\n"
    write_project(tmp_path, files={"__init__.py": body})
    found = []
    threads = [
        threading.Thread(target=lambda: found.append(hub.get_local_kernel(tmp_path)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1
    assert builtins.counted == 1
    del builtins.counted


def test_the_layout_before_metadata_named_its_package_loads(tmp_path):
    files = {"__init__.py": None, "twice/__init__.py": "from .more import x\n", "twice/more.py": "x = 5\n"}  # fmt: skip
    write_project(tmp_path, files=files)
    assert hub.get_local_kernel(tmp_path).x == 5


def test_packages_without_init_and_data_files_work(tmp_path):
    body = "from .loose.deep import x\nfrom importlib.resources import files\ndata = files(__package__).joinpath('data.bin').read_bytes()\n"
    write_project(tmp_path, files={"__init__.py": body, "loose/deep.py": "x = 7\n"})
    kernel = hub.get_local_kernel(tmp_path)
    assert (kernel.x, kernel.data) == (7, b"\0\1\2")


C = r"""
#define PY_SSIZE_T_CLEAN
#include <Python.h>
static PyObject *answer(PyObject *self, PyObject *none) { return PyLong_FromLong(42); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, ""}, {0}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_native_1", 0, -1, methods};
PyMODINIT_FUNC PyInit__native_1(void) { return PyModule_Create(&module); }
"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="needs a C compiler")
def test_a_compiled_module_loads_and_its_id_is_given_once(tmp_path):
    source = tmp_path / "m.c"
    source.write_text(C)
    library = tmp_path / "_native_1.abi3.so"
    include = sysconfig.get_path("include")
    flags = ["-DPy_LIMITED_API=0x03090000", f"-I{include}", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, source, "-o", library], check=True)
    files = {
        "__init__.py": "from . import _native_1\nanswer = _native_1.answer\n",
        "_native_1.abi3.so": library.read_bytes(),
    }
    one = hub.get_local_kernel(write_project(tmp_path / "1", id="_native_1", files=files))
    assert one.answer() == 42
    files["__init__.py"] += "#"
    with pytest.raises(PackageError, match=r"as torch.ops._native_1, which the kernel loaded from"):
        hub.get_local_kernel(write_project(tmp_path / "2", id="_native_1", files=files))


def test_dependencies_are_given_while_the_kernel_is_imported(tmp_path):
    body = "from kernelmill.hub import get_kernel_dep\nother = get_kernel_dep('org/other')\nimport kernels\nsame = kernels.get_kernel_dep('org/other')\n"
    root = write_project(tmp_path / "a", files={"__init__.py": body})
    other = hub.get_local_kernel(write_project(tmp_path / "b", "other"))
    candidate = load.read_candidate(local_variant(root))
    kernel = load.load(candidate, dependencies={"org/other": other})
    assert kernel.other is kernel.same is other
    with pytest.raises(PackageError, match="only while a kernel is imported"):
        hub.get_kernel_dep("org/other")
    with pytest.raises(
        KernelImportError, match="does not depend on 'org/other'; it declares: org/x"
    ):
        load.load(candidate, dependencies={"org/x": other})


def test_metadata_is_seen_by_the_signature_check_before_it_is_parsed(tmp_path):
    variant = write_variant(tmp_path / "torch-universal")
    (variant / "metadata.json").write_text("{ not json")

    def refuse(raw):
        raise IntegrityError(f"not signed: {raw[:5]!r}")

    with pytest.raises(IntegrityError, match="not signed: b'{ not'"):
        load.read_candidate(variant, before_parsing=refuse)


@pytest.mark.parametrize("name", ["../x", "a b", "1a", "", "a.b"])
def test_an_id_that_is_no_identifier_is_refused(tmp_path, name):
    variant = write_variant(tmp_path / "torch-universal")
    made = json.loads((variant / "metadata.json").read_text())
    write_metadata(variant, {**made, "id": name})
    with pytest.raises(IntegrityError, match="accepted: an identifier"):
        load.read_candidate(variant)


@pytest.mark.parametrize(
    ("prepare", "text"),
    [
        (lambda d: None, "is not a directory"),
        (lambda d: d.mkdir(), "has no variant for this system:\n  none at all"),
        (lambda d: write_project(d, variants=["torch-cuda"], backend="cuda"),
         "torch-cuda: it is for cuda; this system has cpu"),
        (lambda d: (d / "build/nonsense").mkdir(parents=True), "nonsense: no name of a variant"),
        (lambda d: (d / "build/torch-cpu").mkdir(parents=True), "torch-cpu has no metadata.json"),
    ],
)  # fmt: skip
def test_what_cannot_be_loaded_is_said_of_each_variant(tmp_path, prepare, text):
    prepare(tmp_path / "p")
    with pytest.raises(PackageError) as caught:
        hub.get_local_kernel(tmp_path / "p", backend="cpu")
    assert text in str(caught.value)


def test_kept_code_is_only_read_where_nobody_else_can_write(tmp_path):
    from kernelmill.config import get_config

    root = write_project(tmp_path / "p")
    hub.get_local_kernel(root)
    folder = get_config().cache_dir / finder.CODE
    kept = sorted(folder.iterdir())
    assert len(kept) == 1  # all modules that were imported
    whole = kept[0].read_bytes()
    kept[0].write_bytes(whole[:-1])  # torn or overwritten: compiled again
    forget_all()
    assert hub.get_local_kernel(root).twice(1) == 2
    assert kept[0].read_bytes() == whole
    folder.chmod(0o777)
    assert finder._read_own(str(kept[0])) is None
    folder.chmod(0o500)
    forget_all()
    if os.getuid():
        assert hub.get_local_kernel(root).twice(1) == 2


def test_a_kernel_is_compiled_once_and_other_bytes_of_it_anew(tmp_path, monkeypatch):
    from kernelmill.config import get_config

    files = {"__init__.py": "from . import a", "a.py": "x = 1", "late.py": "y = 2"}
    root = write_project(tmp_path / "p", files=files)
    made = []
    monkeypatch.setattr(
        finder, "_compiled", lambda text, path: made.append(path) or compile(text, path, "exec")
    )

    def names():
        found = [Path(path).name for path in made]
        made.clear()
        return found

    kernel = hub.get_local_kernel(root)
    assert names() == ["__init__.py", "a.py"]
    importlib.import_module(f"{kernel.__name__}.late")
    assert names() == ["late.py"]
    assert len(list((get_config().cache_dir / finder.CODE).iterdir())) == 2
    forget_all()
    again = hub.get_local_kernel(root)
    assert importlib.import_module(f"{again.__name__}.late").y == 2
    assert (again.a.x, names()) == (1, [])
    forget_all()
    write_project(root, files={**files, "a.py": "x = 3"})
    assert hub.get_local_kernel(root).a.x == 3
    assert "a.py" in names()


def test_code_without_assertions_is_kept_apart(tmp_path):
    from kernelmill.config import get_config

    body = "def f():\n    assert False, 'on'\n    return 'off'\n"
    root = write_project(tmp_path / "p", files={"__init__.py": "from .a import f", "a.py": body})
    text = "import sys; from kernelmill import hub; k = hub.get_local_kernel(sys.argv[1]); print(k.f())"
    done = subprocess.run(
        [sys.executable, "-O", "-c", text, str(root)],
        env={**os.environ, "KERNELMILL_CACHE_DIR": str(get_config().cache_dir)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "off\n"
    with pytest.raises(AssertionError, match="on"):
        hub.get_local_kernel(root).f()
    assert len(list((get_config().cache_dir / finder.CODE).iterdir())) == 2


def test_a_kernel_that_loads_itself_gets_what_is_there_of_it(tmp_path):
    body = (
        "from pathlib import Path\nfrom kernelmill import hub\nfirst = 1\n"
        "own = hub.get_local_kernel(Path(__file__).parent)\nfrom . import after\n"
    )
    root = write_project(tmp_path / "p", files={"__init__.py": body, "after.py": "x = 2"})
    kernel = hub.get_local_kernel(root)
    assert kernel.own is kernel
    assert kernel.after.x == 2


def forget_all():
    for name in list(load._state.kernels):
        finder.forget(name)
    load._state.kernels.clear()
    load._state.claims.clear()
