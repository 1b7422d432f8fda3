"""Ranges that a kernel project declares beyond `build.toml`; written into its variants' metadata.

`build.toml` names kernels with integers and Python packages of a curated list, which others read.
`pyproject.toml` may say more about them, which stands under the key `kernelmill` of the metadata::

    [tool.kernelmill.kernel-depends]
    "org/relu" = ">=1.1,<2"        # build.toml has { repo-id = "org/relu", version = 1 }

    [tool.kernelmill]
    python-depends = ["numpy>=1.26"]
"""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import ManifestError, PackageError

if TYPE_CHECKING:
    from pathlib import Path

    from kernelmill.package.manifest import Manifest

__all__ = ["declared_needs"]

_KERNELS: Final = "kernel-depends"
_PYTHON: Final = "python-depends"


def declared_needs(root: Path, manifest: Manifest, backend: str) -> dict[str, Any]:  # Any: JSON
    """Return what the metadata of a variant holds under `kernelmill` about its needs.

    Parameters
    ----------
    root
        The project's directory.
    manifest
        What its `build.toml` says.
    backend
        The variant's.

    Returns
    -------
    needs
        `kernel-depends` and `python-depends`, each only where there is something.

    Raises
    ------
    ManifestError
        An entry is wrong, names a kernel that `build.toml` does not list, or excludes the major
        version that stands there.
    """
    path = root / "pyproject.toml"
    if not path.is_file():
        return {}
    with path.open("rb") as stream:
        found = tomllib.load(stream).get("tool", {}).get("kernelmill", {})
    made: dict[str, Any] = {}
    if found.get(_KERNELS):
        made[_KERNELS] = _kernels(found[_KERNELS], manifest, backend)
    if found.get(_PYTHON):
        made[_PYTHON] = _python(found[_PYTHON])
    return {key: rows for key, rows in made.items() if rows}


def _kernels(table: object, manifest: Manifest, backend: str) -> list[dict[str, object]]:
    from kernelmill.package.wanted import Wanted, satisfiable  # noqa: PLC0415 - an extra's

    place = f"pyproject.toml: `tool.kernelmill.{_KERNELS}`"
    if not isinstance(table, dict):
        raise ManifestError(f"{place} is no table")
    listed = {
        one.repo_id: one.version
        for name in manifest.general.backends
        for one in manifest.kernel_depends(str(name))
    }
    here = {one.repo_id for one in manifest.kernel_depends(backend)}
    rows: list[dict[str, object]] = []
    for repo_id, value in sorted(table.items()):
        if repo_id not in listed:
            raise ManifestError(
                f"{place} names {repo_id}, which build.toml does not list",
                hint="others read build.toml's kernel-depends alone: name its major version there",
            )
        try:
            wanted = Wanted.parse(value, place=f"{place}.{repo_id}")
        except PackageError as error:
            raise ManifestError(error.message, hint=error.hint) from None
        major = listed[repo_id]
        if major is not None and not satisfiable([wanted.range, f">={major},<{major + 1}"]):
            raise ManifestError(
                f"{place}.{repo_id} is {wanted}, which excludes version {major} of build.toml"
            )
        if repo_id in here:
            rows.append({"repo-id": repo_id, **wanted.to_json()})
    return rows


def _python(rows: object) -> list[str]:
    from kernelmill.package.wanted import PythonNeed  # noqa: PLC0415 - an extra's

    place = f"pyproject.toml: `tool.kernelmill.{_PYTHON}`"
    if not isinstance(rows, list):
        raise ManifestError(f"{place} is no list")
    try:
        needs = [PythonNeed.parse(row, place=f"{place}[{n}]") for n, row in enumerate(rows)]
    except PackageError as error:
        raise ManifestError(error.message, hint=error.hint) from None
    return sorted(map(str, needs))
