"""The kernels that a project names in its `pyproject.toml`. Chooses no versions, writes no locks.

Hugging Face's table `[tool.kernels.dependencies]` holds integers; ours, `[tool.kernelmill]`, ranges
and revisions as well. Both may stand there.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import PackageError
from kernelmill.package.index import KernelNeed
from kernelmill.package.wanted import Wanted, check_repo_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["PYPROJECT", "Dependencies", "read_dependencies"]

PYPROJECT: Final = "pyproject.toml"


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What `pyproject.toml` says about kernels.

    Parameters
    ----------
    directory
        Where it stands; the locks go there.
    needs
        From `[tool.kernelmill.dependencies]` and `[tool.kernels.dependencies]`.
    side_by_side
        Repositories of which several major versions may be locked; True for all.
    """

    directory: Path
    needs: tuple[KernelNeed, ...]
    side_by_side: bool | tuple[str, ...] = False


def read_dependencies(directory: Path) -> Dependencies:
    """Read what a project asks for.

    Raises
    ------
    PackageError
        There is no `pyproject.toml`, it is no TOML, or an entry is wrong; the text names the key.
    """
    path = directory / PYPROJECT
    try:
        with path.open("rb") as stream:
            body = tomllib.load(stream)
    except (FileNotFoundError, NotADirectoryError):
        raise PackageError(
            f"there is no {path.absolute()}",
            hint="its [tool.kernelmill.dependencies] name the kernels",
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PackageError(f"{path} is no TOML: {error}") from None
    tools = _table(body.get("tool", {}), f"{path}: tool")
    ours, theirs = (
        _table(tools.get(name, {}), f"{path}: tool.{name}") for name in ("kernelmill", "kernels")
    )
    needs = [
        *_dependencies(ours, f"{path}: tool.kernelmill.dependencies", ranges=True),
        *_dependencies(theirs, f"{path}: tool.kernels.dependencies", ranges=False),
    ]
    if not needs:
        raise PackageError(
            f"{path} names no kernels",
            hint='under [tool.kernelmill.dependencies], for example "org/name" = ">=1.1,<2"',
        )
    unique = tuple(dict.fromkeys(needs))
    return Dependencies(directory, unique, _side_by_side(ours, "kernelmill" in tools, str(path)))


def _table(value: object, place: str) -> dict[str, Any]:  # Any: TOML
    if not isinstance(value, dict):
        raise PackageError(f"{place} is {str(value)[:80]!r}; accepted: a table")
    return value


def _dependencies(table: Mapping[str, Any], place: str, *, ranges: bool) -> Iterator[KernelNeed]:
    for name, value in _table(table.get("dependencies", {}), place).items():
        repo_id = check_repo_id(name, place=f"a key of {place}")
        spot = f'{place}."{name}"'
        wanted = Wanted.parse(value, place=spot)
        if not ranges and not (isinstance(value, int) and wanted.integer is not None):
            raise PackageError(
                f"{spot} is {value!r}; accepted there: an integer, since `kernels` reads it too",
                hint="ranges and revisions go to [tool.kernelmill.dependencies]",
            )
        yield KernelNeed(repo_id, wanted)


def _side_by_side(ours: Mapping[str, Any], there: bool, path: str) -> bool | tuple[str, ...]:  # noqa: FBT001
    """Return the setting; a project of Hugging Face's alone has what its tool does."""
    value = ours.get("side-by-side", not there)
    if isinstance(value, bool):
        return value
    place = f"{path}: tool.kernelmill.side-by-side"
    if not isinstance(value, list):
        raise PackageError(f"{place} is {value!r}; accepted: true, false or a list of kernels")
    return tuple(check_repo_id(name, place=f"{place}[{n}]") for n, name in enumerate(value))
