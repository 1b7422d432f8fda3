"""What `import kernelmill` offers, and what it must not do: open, compile, write, warn, take time."""

from __future__ import annotations

import ast
import doctest
import inspect
import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import kernelmill as km
from kernelmill.compiler.kernel_functions import Indices

# Types of arrays, not callables of their own kind; errors are shown where they are raised.
PLAIN = {n for n in km.__all__ if isinstance(getattr(km, n), type(km.float32))}
ERRORS = {n for n in km.__all__ if isinstance(getattr(km, n), type)
          and issubclass(getattr(km, n), Exception)}  # fmt: skip
WELL_KNOWN = {n for n in km.__all__ if isinstance(getattr(km, n), km.Op)}


def child(text: str) -> Any:
    """Run a text in a fresh interpreter, which prints one line of JSON."""
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    assert not made.stderr
    return json.loads(made.stdout)


def natural(name: str) -> list[Any]:
    """The order in which people and ruff sort: complex64 before complex128."""
    return [
        (name[0].islower(), 0),
        *((int(p), "") if p.isdigit() else (-1, p) for p in re.split(r"(\d+)", name)),
    ]


def test_all_is_sorted_and_is_what_there_is() -> None:
    assert list(km.__all__) == sorted(km.__all__, key=natural)
    assert len(set(km.__all__)) == len(km.__all__)
    for name in km.__all__:
        assert getattr(km, name) is not None
    assert set(km.__all__) <= set(dir(km))


def test_the_namespace_holds_no_other_public_names() -> None:
    found = child(
        """
        import json, kernelmill
        for name in kernelmill.__all__: getattr(kernelmill, name)
        modules = type(json)
        print(json.dumps(sorted(n for n, v in vars(kernelmill).items()
                                if not n.startswith("_") and not isinstance(v, modules))))
        """
    )
    allowed = {"Final", "TYPE_CHECKING", "annotations"}  # what the module itself imports
    assert set(found) - allowed == set(km.__all__)


def test_classes_of_extras_are_reached_but_not_starred() -> None:
    """`from kernelmill import *` works without the extra that brings them."""
    found = child(
        """
        import json, sys
        sys.modules["cuda.core"] = None
        from kernelmill import *
        import kernelmill
        try:
            kernelmill.Stream
        except ImportError as error:
            print(json.dumps([error.hint, sorted(set(kernelmill._FROM_EXTRAS) - set(dir(kernelmill)))]))
        """
    )
    assert found == [
        "pip install 'kernelmill[cuda13]', or 'kernelmill[cuda12]' for a driver below 580",
        [],
    ]
    core = pytest.importorskip("cuda.core")
    assert all(getattr(km, name) is getattr(core, name) for name in km._FROM_EXTRAS)


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="module 'kernelmill' has no attribute 'sortt'"):
        km.sortt


@pytest.mark.parametrize("name", sorted(set(km.__all__) - PLAIN - ERRORS - WELL_KNOWN))
def test_everything_has_a_docstring_with_an_example(name: str) -> None:
    found = getattr(km, name)
    text = inspect.getdoc(found) or ""
    if name in ("Plan", "Op"):  # made by functions that show them
        assert len(text) > 100
        return
    if isinstance(found, Indices):  # CUDA's own, described on one page
        assert len(text) > 60
        return
    assert callable(found)
    assert doctest.DocTestParser().get_examples(text), f"km.{name} shows no example"


@pytest.mark.parametrize("name", sorted(ERRORS | PLAIN | WELL_KNOWN))
def test_the_rest_has_a_docstring(name: str) -> None:
    assert inspect.getdoc(getattr(km, name))


def test_planners_are_documented_too() -> None:
    for family in (km.transform, km.reduce, km.transform_reduce):
        assert family.plan.__doc__  # type: ignore[attr-defined]


AUDIT = """
import json, os, sys, threading, warnings
import numpy
seen = []
def hook(event, args):
    if event == "open" and isinstance(args[0], (str, bytes)):
        mode, flags = args[1] or "", args[2] or 0
        if set(mode) & set("wax+") or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            seen.append(["write", str(args[0])])
    elif event in ("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn",
                   "os.mkdir", "os.rename", "os.remove", "os.rmdir", "socket.connect"):
        seen.append([event, str(args[:1])])
    elif event == "ctypes.dlopen":
        seen.append([event, str(args[0])])
sys.dont_write_bytecode = True
sys.addaudithook(hook)
before = threading.active_count()
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    import kernelmill
    for name in kernelmill.__all__ if EVERYTHING else ():
        getattr(kernelmill, name)
libraries = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
print(json.dumps({
    "seen": seen,
    "warned": [str(w.message) for w in warned],
    "threads": threading.active_count() - before,
    "cuda": sorted(l for l in libraries if "libcuda" in l or "nvrtc" in l),
    "modules": sorted({"torch", "ml_dtypes", "ctypes.util", "asyncio", "click"} & set(sys.modules)),
}))
"""


@pytest.mark.parametrize("everything", [False, True])
def test_importing_opens_compiles_writes_and_warns_nothing(everything: bool) -> None:
    assert child(f"EVERYTHING = {everything}\n" + AUDIT) == {
        "seen": [], "warned": [], "threads": 0, "cuda": [], "modules": [],
    }  # fmt: skip


def test_the_audit_sees_what_it_looks_for(tmp_path: Any) -> None:
    text = AUDIT.replace(
        "    import kernelmill\n",
        f"    import kernelmill, ctypes, subprocess\n    open({str(tmp_path / 'x')!r}, 'w').close()\n"
        "    ctypes.CDLL(None); subprocess.run(['true']); warnings.warn('x')\n",
    )
    found = child("EVERYTHING = False\n" + text)
    assert {kind for kind, _ in found["seen"]} >= {"write", "subprocess.Popen", "ctypes.dlopen"}
    assert found["warned"] == ["x"]


def share_of_import() -> float:
    """CPU time that `import kernelmill` adds to NumPy's, as a part of it; names come at first use."""
    return child(
        """
        import json, time
        start = time.process_time()
        import numpy
        middle = time.process_time()
        import kernelmill
        print(json.dumps((time.process_time() - middle) / (middle - start)))
        """
    )


def test_importing_adds_at_most_half_of_what_numpy_takes() -> None:
    share_of_import()  # byte code is written once
    found = []
    while len(found) < 10 and min(found, default=1) > 0.5:
        found.append(share_of_import())
    assert min(found) <= 0.5


def test_type_checkers_see_the_names_of_the_table() -> None:
    tree = ast.parse(Path(km.__file__).read_text(encoding="utf-8"))
    (block,) = (n for n in tree.body if isinstance(n, ast.If))
    seen = {
        (alias.name, statement.module)
        for statement in block.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    wanted = {(name, home) for home, names in km._HOMES.items() for name in names}
    assert seen == wanted | {(name, "kernelmill") for name in km._MODULES}


def test_modules_of_public_names_are_reached_and_complete() -> None:
    for name in km._MODULES:
        module = getattr(km, name)
        assert module.__name__ == f"kernelmill.{name}"
        assert name in dir(km)
        assert list(module.__all__) == sorted(module.__all__)
        assert all(callable(getattr(module, n)) for n in module.__all__)
