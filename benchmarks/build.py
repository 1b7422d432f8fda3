"""What `kernelmill build` takes, in fresh processes: cold, unchanged, after an edit, many variants.

"Cold" compiles and links everything with an empty cache of objects; wheels and headers of torch are
there, as after the first build of a machine. The time is that of the whole command; what takes
longer than a few seconds is measured once.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from harness import OURS, Case, Contender, Goal
from kernelmill.package.headers import cuda_library_headers, torch_headers, tvm_ffi_headers
from kernelmill.package.release import Release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from harness import Budget

__all__ = ["cases"]

_NAME: Final = "img2gray"
_EXAMPLE: Final = Path(__file__).resolve().parents[1] / "examples" / "kernels" / _NAME
_STABLE, _CLASSIC, _TVM = "torch-stable-abi210", "torch213-cxx11", "tvm-ffi01"
_TWO: Final = ("--arch", "8.0", "--arch", "9.0")
_RELOAD: Final = """
import importlib, sys, time
from pathlib import Path
from kernelmill.package.editable import hook_files
place = Path(sys.argv[2])
for name, data in hook_files("img2gray", Path(sys.argv[1])).items():
    (place / name).write_bytes(data)
sys.path.insert(0, str(place))
import __editable___img2gray_kernel
import img2gray
source = Path(sys.argv[1], "csrc/img2gray_cpu.cpp")
text = source.read_text()
source.write_text(text.replace("128u", "129u"))
importlib.reload(img2gray)
source.write_text(text.replace("128u", "130u"))
start = time.perf_counter()
importlib.reload(img2gray)
print(time.perf_counter() - start)
source.write_text(text)
"""


def _project(root: Path) -> None:
    """Copy the example with three bindings over the same sources into a repository of its own."""
    skipped = shutil.ignore_patterns("build", "toolchain.lock", "dist")
    shutil.copytree(_EXAMPLE, root, ignore=skipped)
    settings = root / "pyproject.toml"
    text = settings.read_text().replace('cuda = ["12.8", "13.0"]', 'cuda = ["13.0"]')
    settings.write_text(text)
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "x")):
        names = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *names, *words], cwd=root, check=True)


def _build(root: Path, *words: str) -> float:
    """Return the seconds of one command."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "kernelmill", "build", *words]
    subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=300)
    return time.perf_counter() - start


def _variants(*patterns: str) -> list[str]:
    return [word for pattern in patterns for word in ("--variant", f"{pattern}-*")]


def cases(budget: Budget) -> Iterator[Case]:
    """Yield the cases of the family."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / _NAME
        _project(root)
        _build(root, *_variants(f"{_STABLE}-cpu"))  # fetches what has to be fetched
        yield from _of_the_processor(root)
        if not budget.quick:
            yield from _of_everything(root, Path(place))


def _of_the_processor(root: Path) -> Iterator[Case]:
    stable, classic = _variants(f"{_STABLE}-cpu"), _variants(f"{_CLASSIC}-cpu")
    yield _case("cold", "stable ABI, CPU", lambda: _cold(root, stable), 3.0)
    yield _case("cold", "classic torch 2.13, CPU", lambda: _cold(root, classic), 10.0)
    yield _case("unchanged", "stable ABI, CPU", lambda: _build(root, *stable), 0.25)
    source = root / "csrc/img2gray_cpu.cpp"
    yield _case(
        "one changed file",
        "stable ABI, CPU",
        _after_edits(source, lambda: _build(root, *stable)),
        0.4,
    )


def _fetch() -> None:
    """Have the headers of all variants in the cache."""
    torch_headers(Release.parse("2.11"))
    tvm_ffi_headers()
    cuda_library_headers(13)


def _of_everything(root: Path, place: Path) -> Iterator[Case]:
    _fetch()
    binding = root / "torch-ext/classic.cpp"
    precompiled = (*_variants(f"{_CLASSIC}-cpu"), "--precompiled")
    _build(root, *precompiled)
    yield _case(
        "one changed binding, headers precompiled",
        "classic torch 2.13, CPU",
        _after_edits(binding, lambda: _build(root, *precompiled)),
        3.0,
    )
    yield _case("reload in a running Python", "stable ABI, CPU", lambda: _reload(root, place), 2.0)
    cuda = _variants(f"{_STABLE}-cu130")
    yield _case("cold", "stable ABI, CUDA, 10 architectures", lambda: _cold(root, cuda), 4.0)
    eight = ("--all", *_TWO)
    yield _case("cold", "8 variants, CUDA for 2 architectures", lambda: _cold(root, eight), 25.0)


def _cold(root: Path, words: Sequence[str]) -> float:
    shutil.rmtree(root / "build", ignore_errors=True)
    return _build(root, "--no-cache", *words)


def _after_edits(source: Path, build: Callable[[], float]) -> Callable[[], float]:
    """Return what edits the source, each time anew, and builds."""
    text, number = source.read_text(), count(int(time.time()))
    build()

    def run() -> float:
        source.write_text(
            f'{text}\nextern "C" int edit_{source.stem}() {{ return {next(number)}; }}\n'
        )
        return build()

    return run


def _reload(root: Path, place: Path) -> float:
    site = place / "site"
    site.mkdir(exist_ok=True)
    command = [sys.executable, "-c", _RELOAD, str(root), str(site)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=dict(os.environ))
    return float(done.stdout)


_LONG: Final = 10.0


def _case(name: str, what: str, seconds: Callable[[], float], limit: float) -> Case:
    ours = Contender(
        OURS,
        seconds,
        measure=lambda _: seconds(),
        single=True,
        once=limit >= _LONG,
        compared=False,
    )
    return Case(name, what, 1, (ours,), (Goal(seconds=limit),))
