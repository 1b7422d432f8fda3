"""Packs a project's locks into its metadata when setuptools builds it. Reads no registry.

An entry point of the group `egg_info.writers`, so it runs in every build where kernelmill is
installed: it does nothing, quickly, for projects that name no kernels.
"""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import Any

__all__ = ["write"]


def write(command: Any, basename: str, filename: str) -> None:  # Any: setuptools' egg_info command
    """Put `kernelmill.lock` or `kernels.lock` beside the other metadata, or delete it there.

    Parameters
    ----------
    command
        The running command `egg_info`.
    basename, filename
        The lock's name, and where it goes.

    Raises
    ------
    LockError
        The lock cannot be used; the build stops, rather than ship it.
    """
    project = Path.cwd() / "pyproject.toml"
    if not project.is_file() or not _names_kernels(project):
        return
    path = project.with_name(basename)
    text: str | None = None
    if path.is_file():
        from kernelmill.package.lock_find import parse_lock  # noqa: PLC0415 - for few builds

        text = path.read_text(encoding="utf-8")
        parse_lock(text, str(path))
    else:
        warnings.warn(f"{path} does not exist; `kernelmill lock` makes it", stacklevel=2)
    command.write_or_delete_file(basename, filename, text)


def _names_kernels(project: Path) -> bool:
    with project.open("rb") as stream:
        tools = tomllib.load(stream).get("tool", {})
    tables = (tools.get(name, {}) for name in ("kernelmill", "kernels"))
    return any(isinstance(table, dict) and table.get("dependencies") for table in tables)
