"""Loading a cached, locked kernel, every file of it verified, beside a plain import of the files.

A peer imports the files as Python does and hashes as many bytes once, in memory: verification can
cost no less. Its byte code is cached, and so is ours. A load may take 1.15 times the import, and
the time in which 1 GB/s hash the bytes.
"""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness import OURS, Case, Contender, Goal
from kernelmill.config import override
from kernelmill.package import finder, load
from kernelmill.package.digest import hash_variant
from kernelmill.package.lock import Lock, LockedFile, LockedKernel, LockedVariant
from kernelmill.package.obtain import Shelves
from kernelmill.package.policy import Policy, RegistrySettings
from kernelmill.package.push import plan_push, push
from kernelmill.package.registry_files import FilesRegistry
from kernelmill.package.shelf import open_shelf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from harness import Budget

__all__ = ["cases"]

PLAIN: Final = "import and sha256"
HASH: Final = "sha256 in memory"
SHARE: Final = 1.15
ALLOWED: Final = "1.15 x import, and 1 GB/s"
_HASHED_PER_SECOND: Final = 1e9
_VARIANT: Final = "torch-universal"
_MODULES: Final = 5
_FUNCTION: Final = '''
def f{0}(x, y={0}):
    """Do something."""
    z = x * y
    return [z, x, y, {{"a": z}}]
'''


@dataclass(frozen=True, slots=True)
class _Setting:
    """A kernel in a registry, in the cache and in a lock, and a copy for the plain import."""

    bytes: int
    shelves: Shelves
    lock: Lock
    plain: Path


def _kernel(size: int, home: Path) -> Path:
    """Write a kernel of some modules and `size` bytes of data; return its project."""
    place = home / "project" / "build" / _VARIANT
    place.mkdir(parents=True)
    text = "".join(_FUNCTION.format(number) for number in range(100))
    names = [f"m{number}" for number in range(_MODULES)]
    for name in names:
        (place / f"{name}.py").write_text(text)
    (place / "__init__.py").write_text("".join(f"from . import {name}\n" for name in names))
    (place / "data.bin").write_bytes(os.urandom(size))
    facts = {
        "name": "loaded", "id": f"_loaded_{size}", "version": 1, "license": "MIT",
        "python-depends": [], "backend": {"type": "cpu"}, "kernelmill": {"version": "1.0.0"},
        "digest": hash_variant(place).to_json(),
    }  # fmt: skip
    (place / "metadata.json").write_text(json.dumps(facts))
    return home / "project"


@functools.cache
def _setting(size: int) -> _Setting:
    home = Path(tempfile.mkdtemp(prefix="kernelmill-bench-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    stack = ExitStack()
    stack.enter_context(override(cache_dir=home / "mill", hub_cache=home / "hub"))
    atexit.register(stack.close)
    project = _kernel(size, home)
    registry = FilesRegistry(open_shelf(str(home / "registry")))
    made = push(plan_push(project, "bench/loaded", registry), registry)
    variant = project / "build" / _VARIANT
    sums = hash_variant(variant).hexadecimal()
    metadata = (variant / "metadata.json").read_bytes()
    sums["metadata.json"] = hashlib.sha256(metadata).hexdigest()
    files = {p: LockedFile(s, (variant / p).stat().st_size) for p, s in sums.items()}
    kernel = LockedKernel(
        "bench/loaded", "1.0.0", "v1", made.commit, {_VARIANT: LockedVariant(_VARIANT, files)}
    )
    policy = Policy((RegistrySettings("bench", str(home / "registry"), trust="all"),))
    setting = _Setting(
        sum(file.size for file in files.values()),
        Shelves(policy=policy),
        Lock((), {"bench/loaded": kernel}),
        home / "plain",
    )
    shutil.copytree(variant, setting.plain)
    _load(setting)
    setting.shelves.offline = True
    return setting


def _load(setting: _Setting) -> Any:
    """Load the kernel as if it had never been loaded."""
    for name in list(load._state.kernels):  # noqa: SLF001 - there is no way to unload for users
        finder.forget(name)
    load._state.kernels.clear()  # noqa: SLF001
    load._state.claims.clear()  # noqa: SLF001
    setting.shelves._listings.clear()  # noqa: SLF001 - read anew from the cache, as a process does
    return setting.shelves.load_locked(setting.lock, "bench/loaded").__name__ != ""


def _import(setting: _Setting) -> Any:
    """Import the same files as Python does."""
    for name in [m for m in sys.modules if m.partition(".")[0] == "plainly_loaded"]:
        del sys.modules[name]
    place = setting.plain / "__init__.py"
    spec = importlib.util.spec_from_file_location("plainly_loaded", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["plainly_loaded"] = module
    spec.loader.exec_module(module)
    return module.__name__ != ""


def _timed(work: Callable[[_Setting], Any], setting: _Setting) -> Callable[[int], float]:
    def measure(number: int) -> float:
        before, sys.dont_write_bytecode = sys.dont_write_bytecode, False
        try:
            start = time.perf_counter()
            for _ in range(number):
                work(setting)
            return time.perf_counter() - start
        finally:
            sys.dont_write_bytecode = before

    return measure


@functools.cache
def _bytes(size: int) -> bytes:
    return os.urandom(size)


def _hash(setting: _Setting) -> bool:
    return bool(hashlib.sha256(_bytes(setting.bytes)).digest())


def _import_and_hash(setting: _Setting) -> bool:
    return _import(setting) and _hash(setting)


def _allowed(setting: _Setting) -> Callable[[int], float]:
    imported = _timed(_import, setting)
    return lambda number: SHARE * imported(number) + number * setting.bytes / _HASHED_PER_SECOND


def cases(budget: Budget) -> Iterator[Case]:
    """Yield one case a size of the kernel, and hashing alone."""
    for size in (1 << 10, 1 << 20, 1 << (24 if budget.quick else 26)):
        yield _loading(size)
    yield _hashing(1 << (24 if budget.quick else 26))


def _loading(size: int) -> Case:
    setting = _setting(size)
    return Case(
        name=f"load a locked kernel, {_MODULES} modules and {size >> 10:,} KiB of data",
        dtype="",
        elements=setting.bytes,
        contenders=(
            Contender(OURS, lambda: _load(setting), _timed(_load, setting)),
            Contender(PLAIN, lambda: _import_and_hash(setting), _timed(_import_and_hash, setting)),
            Contender(ALLOWED, lambda: _import(setting), _allowed(setting)),
        ),
        goals=(Goal(peer=ALLOWED, ratio=1.0),),
    )


def _hashing(size: int) -> Case:
    setting = _setting(size)
    return Case(
        name=f"hash a kernel of {size >> 20} MiB",
        dtype="",
        elements=setting.bytes,
        bytes=setting.bytes,
        contenders=(
            Contender(OURS, lambda: bool(hash_variant(setting.plain).files)),
            Contender(HASH, lambda: _hash(setting)),
        ),
        goals=(Goal(seconds=setting.bytes / _HASHED_PER_SECOND),),
    )
