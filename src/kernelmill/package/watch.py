"""`kernelmill dev`: the hook in this environment, and a build whenever a source changes."""

from __future__ import annotations

import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.errors import KernelmillError
from kernelmill.package.editable import content, develop, hook_files
from kernelmill.package.source_state import project_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelmill.package.matrix import Project

__all__ = ["Event", "follow", "install_hook", "remove_hook"]

_PAUSE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Event:
    """One build of `follow`: what is to be said of it."""

    text: str
    failed: bool = False

    def __str__(self) -> str:
        return self.text


def _places(project: Project) -> dict[Path, bytes]:
    site = Path(sysconfig.get_path("purelib"))
    files = hook_files(project.manifest.general.python_name, project.root)
    return {site / name: data for name, data in files.items()}


def install_hook(project: Project) -> list[Path]:
    """Make the kernel importable in this environment; return the files written."""
    places = _places(project)
    for path, data in places.items():
        path.write_bytes(data)
    return list(places)


def remove_hook(project: Project) -> list[Path]:
    """Undo `install_hook`; return what was removed."""
    found = [path for path in _places(project) if path.exists()]
    for path in found:
        path.unlink()
    return found


def follow(root: Path, *, once: bool = False) -> Iterator[Event]:
    """Build, and again whenever a file of the project changes; yield what came of each build.

    A build that fails is an event too; with `once` its error is raised.
    """
    state: dict[str, tuple[int, int]] = {}
    while True:
        found = _state(root)
        if found != state:
            state = found
            yield _build(root, once=once)
        if once:
            return
        time.sleep(_PAUSE)


def _state(root: Path) -> dict[str, tuple[int, int]]:
    state = {}
    for name in project_files(root):
        try:
            status = (root / name).stat()
        except FileNotFoundError:
            continue  # an editor replaces it at this moment
        state[name] = status.st_mtime_ns, status.st_size
    return state


def _build(root: Path, *, once: bool) -> Event:
    try:
        built = develop(root, f"dev{content(root)[:10]}")
    except KernelmillError as error:
        if once:
            raise
        return Event(f"error: {error}", failed=True)
    return Event(f"{built.variant}  {built.compiled} compiled  {built.seconds:.2f} s")
