"""An environment with a torch of one's choice, the tools of a build and the project, editable.

It is a virtual environment in the cache, made once for a project and a torch. What runs in it is
the user's shell, or a command.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.cache.lock import hold
from kernelmill.config import child_environment
from kernelmill.errors import ToolchainError
from kernelmill.package.build_cache import build_cache
from kernelmill.package.editable import hook_files
from kernelmill.package.manifest import Torch, TorchNoarch, TvmFfi
from kernelmill.toolchain.run import run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernelmill.package.matrix import Project

__all__ = ["Environment", "environment_of", "lacks_torch"]

_DONE: Final = ".kernelmill-complete"
_MAKE_SECONDS: Final = 120.0
_INSTALL_SECONDS: Final = 3600.0
_PROGRAM: Final = """\
#!{python}
import sys

from kernelmill.cli import main

sys.exit(main())
"""
_TOOLS: Final = ("numpy", "click", "pytest")
_TVM_FFI: Final = "apache-tvm-ffi"


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment: where, and what programs run with in it."""

    path: Path
    variables: dict[str, str]

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.path / "bin" / "python"

    def execute(self, command: Sequence[str]) -> None:
        """Replace this process by a command that runs in the environment.

        Raises
        ------
        ToolchainError
            There is no such program.
        """
        found = shutil.which(command[0], path=self.variables["PATH"])
        if found is None:
            raise ToolchainError(
                f"there is no program {command[0]!r} in the environment, nor on PATH",
                hint=f"`kernelmill shell -- python -m pip install ...` adds to {self.path}",
            )
        os.execve(found, list(command), self.variables)  # noqa: S606 - the user's own


def environment_of(project: Project, torch: str | None, *, fresh: bool = False) -> Environment:
    """Return the environment of a project for a version of torch, made if it is absent.

    Parameters
    ----------
    project
        The kernel's project; it is importable there by its name.
    torch
        A version such as 2.12, or None for none.
    fresh
        Whether it is made anew.

    Raises
    ------
    ToolchainError
        It cannot be made: pip's own output is in `log`.
    """
    of_ffi = any(isinstance(m.framework, TvmFfi) for _, m in project.manifests)
    wanted = [*_TOOLS, *([_TVM_FFI] if of_ffi else ())]
    if torch:
        wanted.append(f"torch=={torch}.*" if torch.count(".") == 1 else f"torch=={torch}")
    text = "\0".join([str(project.root), sys.executable, *wanted])
    name = f"{project.name}-{torch or 'none'}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    path = build_cache() / "environments" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with hold(path.with_name(f"{name}.lock"), _INSTALL_SECONDS):
        if fresh or not (path / _DONE).exists():
            try:
                _make(path, project, wanted)
            except BaseException:
                shutil.rmtree(path, ignore_errors=True)
                raise
    return Environment(path, _variables(path))


def lacks_torch(project: Project, torch: str | None) -> bool:
    """Return whether a project of torch gets an environment without it."""
    kinds = (Torch, TorchNoarch)
    return not torch and all(isinstance(m.framework, kinds) for _, m in project.manifests)


def _make(path: Path, project: Project, wanted: Sequence[str]) -> None:
    shutil.rmtree(path, ignore_errors=True)
    _must([sys.executable, "-m", "venv", str(path)], _MAKE_SECONDS, "no environment was made")
    python = str(path / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted]
    _must(install, _INSTALL_SECONDS, f"{' '.join(wanted)} were not installed")
    site = next((path / "lib").glob("python3*")) / "site-packages"
    _provide_kernelmill(site)
    program = path / "bin" / "kernelmill"
    program.write_text(_PROGRAM.format(python=python))
    program.chmod(0o755)
    for file, data in hook_files(project.manifest.general.python_name, project.root).items():
        (site / file).write_bytes(data)
    (path / _DONE).touch()


def _must(command: Sequence[str], seconds: float, what: str) -> None:
    done = run(command, timeout=seconds, environment=child_environment())
    if not done.ok:
        raise ToolchainError(what, log=done.output, hint="`pip config list` shows pip's index")


def _provide_kernelmill(site: Path) -> None:
    """Make this very kernelmill importable: installed from the index it might be another one."""
    source = Path(__file__).parents[2]
    try:
        editable = distribution("kernelmill").read_text("direct_url.json") or ""
    except PackageNotFoundError:
        editable = "editable"  # run from its sources
    if "editable" in editable or not _is_site(source):
        (site / "kernelmill.pth").write_text(f"{source}\n")
        return
    shutil.copytree(source / "kernelmill", site / "kernelmill", dirs_exist_ok=True)


def _is_site(source: Path) -> bool:
    return source.name in ("site-packages", "dist-packages")


def _variables(path: Path) -> dict[str, str]:
    variables = child_environment(VIRTUAL_ENV=str(path))
    variables["PATH"] = os.pathsep.join([str(path / "bin"), variables.get("PATH", os.defpath)])
    for name in ("PYTHONPATH", "PYTHONHOME"):
        variables.pop(name, None)
    return variables
