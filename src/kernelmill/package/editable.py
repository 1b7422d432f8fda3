"""Editable kernels: `import NAME` and `importlib.reload(NAME)` build what changed, then load it.

A wheel of two small files does it: a `.pth`, and a module that finds the kernel by its name.
Nothing of kernelmill is imported before the kernel is.
"""

from __future__ import annotations

import importlib.machinery
import sys
from collections import Counter
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Final

from kernelmill.config import get_config
from kernelmill.package.build import OWN, Options, build
from kernelmill.package.matrix import Project, read_project
from kernelmill.package.select import select
from kernelmill.package.source_state import project_files

if TYPE_CHECKING:
    from types import ModuleType

    from kernelmill.package.build import Built

__all__ = ["Develop", "develop", "hook_files", "load"]

_HOOK: Final = '''\
"""Finds the kernel {name} in its project; written by kernelmill, removed by `pip uninstall`."""

import sys
from importlib.machinery import ModuleSpec

NAME, ROOT = {name!r}, {root!r}


class Finder:
    """Finds one package; it is built when it is executed."""

    @staticmethod
    def find_spec(fullname, path=None, target=None):
        """Return the kernel's spec, None for other modules."""
        if fullname != NAME:
            return None
        spec = ModuleSpec(NAME, Loader, origin=ROOT, is_package=True)
        spec.submodule_search_locations = []
        return spec


class Loader:
    """Builds and executes the kernel."""

    @staticmethod
    def create_module(spec):
        """Let Python make the module."""

    @staticmethod
    def exec_module(module):
        """Build what changed, then run the package's code in the module."""
        from kernelmill.package.editable import load

        load(module, ROOT)


sys.meta_path.insert(0, Finder)
'''


@dataclass(slots=True)
class Develop:
    """A project in this process: how often each state of it was loaded, and which one is now."""

    project: Path
    times: Counter[str] = field(default_factory=Counter)
    current: str = ""
    lock: RLock = field(default_factory=RLock)


_LOADED: Final[dict[str, Develop]] = {}


def hook_files(name: str, root: Path) -> dict[str, bytes]:
    """Return the files that make a kernel importable, by their names in site-packages.

    Examples
    --------
    >>> from pathlib import Path
    >>> from kernelmill.package.editable import hook_files
    >>> sorted(hook_files("relu", Path("/src/relu")))
    ['__editable___relu_kernel.pth', '__editable___relu_kernel.py']
    """
    stem = f"__editable___{name}_kernel"
    return {
        f"{stem}.pth": f"import {stem}\n".encode(),
        f"{stem}.py": _HOOK.format(name=name, root=str(root)).encode(),
    }


def content(root: Path) -> str:
    """Return the digest of a project's files: names and contents."""
    whole = sha256()
    for name in project_files(root):
        path = root / name
        if path.is_file():
            whole.update(f"{name}\0".encode("utf-8", "surrogateescape"))
            whole.update(sha256(path.read_bytes()).digest())
    return whole.hexdigest()


def develop(root: Path, unique: str, *, jobs: int | None = None) -> Built:
    """Build the one variant that this process would load, under names that end in `unique`.

    Raises
    ------
    CompileError
        A compiler refuses a source.
    KernelmillError
        The project has no variant for this machine.
    """
    project: Project = read_project(root)
    entry = select(project).entries[0]
    out = project.root / OWN / "dev" / unique
    options = Options(jobs=jobs or get_config().threads(), unique=unique, out=out, precompiled=True)
    return build(project, [entry], options)[0]


def load(module: ModuleType, root: str) -> None:
    """Build what changed and run the kernel's package in `module`; where nothing did, do nothing.

    Each state of the sources has names of its own for library and operators, since neither can be
    unloaded; a module that is loaded again sees the newest.

    Raises
    ------
    CompileError
        A compiler refuses a source; the module stays as it was.
    """
    state = _LOADED.setdefault(root, Develop(Path(root)))
    with state.lock:
        digest = content(state.project)
        if digest == state.current and hasattr(module, "__kernelmill__"):
            return
        # Back to an earlier state: its operators exist already, so it gets other names again.
        again = f"x{state.times[digest]}" if state.times[digest] else ""
        built = develop(state.project, f"dev{digest[:10]}{again}")
        state.times[digest] += 1
        state.current = digest
        _execute(module, built)


def _execute(module: ModuleType, built: Built) -> None:
    for name in [name for name in sys.modules if name.startswith(f"{module.__name__}.")]:
        del sys.modules[name]
    file = built.path / "__init__.py"
    module.__path__ = [str(built.path)]
    module.__file__ = str(file)
    if module.__spec__ is not None:
        module.__spec__.submodule_search_locations = module.__path__
    loader = importlib.machinery.SourceFileLoader(module.__name__, str(file))
    code = loader.source_to_code(file.read_bytes(), str(file))
    exec(code, module.__dict__)  # noqa: S102 - what an import is
    module.__dict__["__kernelmill__"] = built
