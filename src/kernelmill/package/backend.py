"""The build backend of kernel projects: what pip calls for `pip install .` and `pip install -e .`.

In `pyproject.toml`::

    [build-system]
    requires = ["kernelmill"]
    build-backend = "kernelmill.package.backend"

The hooks are those of PEP 517 and PEP 660. A wheel is of the variant that this machine loads.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill.config import get_config
from kernelmill.package.build import Options, build
from kernelmill.package.editable import hook_files
from kernelmill.package.matrix import Project, read_project
from kernelmill.package.select import select
from kernelmill.package.source_state import project_files
from kernelmill.package.wheel import wheel_name, wheel_of_variant, write_archive

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

_TAG: Final = "py3-none-any"


def _none(config_settings: Mapping[str, Any] | None = None) -> list[str]:
    """Need nothing beyond kernelmill itself."""
    del config_settings
    return []


get_requires_for_build_wheel = get_requires_for_build_editable = get_requires_for_build_sdist = (
    _none
)


def build_wheel(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the variant that this machine loads; return the name of its wheel."""
    del metadata_directory
    project = read_project(Path.cwd())
    named = (config_settings or {}).get("variant")
    entry = select(project, variants=[named] if named else []).entries[0]
    built = build(project, [entry], Options(jobs=get_config().threads()))[0]
    return wheel_of_variant(built.path, Path(wheel_directory)).path.name


def build_editable(
    wheel_directory: str,
    config_settings: Mapping[str, Any] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Return the name of a wheel that builds and loads the kernel from its sources."""
    del config_settings, metadata_directory
    project = read_project(Path.cwd())
    name, version = project.name, _version(project)
    files = hook_files(project.manifest.general.python_name, project.root)
    path = Path(wheel_directory) / f"{wheel_name(name, version)}-{_TAG}.whl"
    write_archive(path, files, name, version, tag=_TAG, facts=["Requires-Python: >=3.11"])
    return path.name


def _version(project: Project) -> str:
    return project.version or str(project.manifest.general.version)


def build_sdist(sdist_directory: str, config_settings: Mapping[str, Any] | None = None) -> str:
    """Write the project's files into an archive; return its name."""
    del config_settings
    project = read_project(Path.cwd())
    stem = wheel_name(project.name, _version(project))
    path = Path(sdist_directory) / f"{stem}.tar.gz"
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name in project_files(project.root):
            archive.add(project.root / name, f"{stem}/{name}", recursive=False)
    return path.name
