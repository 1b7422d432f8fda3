"""`toolchain.lock`: what a project's variants were compiled with, and what deviates from it now.

It is committed beside `build.toml`. Paths and addresses are not in it: it is the same on every
machine that compiles with the same compilers, wheels and headers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from kernelmill.config import get_config
from kernelmill.errors import PackageError, ToolchainError
from kernelmill.package.whole_file import replace_file
from kernelmill.toolchain.memo import memo_key, recall, remember, stamp
from kernelmill.toolchain.run import run

if TYPE_CHECKING:
    from pathlib import Path

    from kernelmill.package.recipe import Recipe
    from kernelmill.toolchain.host import HostCompiler

__all__ = ["FILE", "Drift", "Policy", "ToolchainLock", "facts_of"]

FILE: Final = "toolchain.lock"
Policy = Literal["record", "refuse", "update"]
_SCHEMA: Final = 1
_SECONDS: Final = 30.0
_INNER: Final = {"gcc": "cc1plus", "clang": "clang"}

Facts = dict[str, Any]  # Any: JSON


@dataclass(frozen=True, slots=True)
class Drift:
    """A part that is another one than locked."""

    part: str
    locked: str
    found: str

    def __str__(self) -> str:
        return f"{self.part}: locked is {self.locked}, found {self.found}"


def facts_of(recipe: Recipe) -> Facts:
    """Return what a variant is compiled with, as it stands in the lock."""
    facts: Facts = {
        "host-compiler": _host(recipe.host),
        "headers": {
            f"{one.project} {one.version}": {"tree": one.tree, "read": one.read}
            for one in recipe.headers
        },
    }
    cuda = recipe.cuda
    if cuda is not None:
        made: Facts = {"release": cuda.release, "route": cuda.route}
        if cuda.host_tools is not None:
            made["host-tools"] = cuda.host_tools.release
        if cuda.wheels:
            made["wheels"] = {wheel.name: wheel.sha256 for wheel in cuda.wheels}
        facts["cuda"] = {".".join(cuda.release.split(".")[:2]): made}
    return facts


def _host(host: HostCompiler) -> Facts:
    return {
        "kind": host.kind,
        "version": host.version,
        "target": host.target,
        "sha256": _program_hash(host),
    }


def _program_hash(host: HostCompiler) -> str:
    """Return the sha256 of the program that compiles, remembered while its file stays the same."""
    memos = get_config().cache_dir / "toolchain"
    key = memo_key(_SCHEMA, "program", host.identity)
    known = recall(memos, key)
    if known is not None and stamp(str(known["path"])) == tuple(known["stamp"]):  # type: ignore[arg-type]
        return str(known["sha256"])
    path = host.command[0]
    if host.kind in _INNER:
        asked = run([*host.command, f"-print-prog-name={_INNER[host.kind]}"], timeout=_SECONDS)
        path = asked.output.strip() or path
    state = stamp(path)
    if state is None:
        return ""
    from kernelmill.package.digest import file_hash  # noqa: PLC0415 - 30 MB, once

    sha256 = file_hash(state[0]).hex()
    remember(memos, key, {"path": path, "stamp": list(state), "sha256": sha256})
    return sha256


@dataclass(frozen=True, slots=True)
class ToolchainLock:
    """The lock of a project; `facts` is empty where there is none yet."""

    path: Path
    facts: Facts

    @classmethod
    def read(cls, root: Path) -> ToolchainLock:
        """Read the lock of a project.

        Raises
        ------
        PackageError
            The file is no lock of this form.
        """
        path = root / FILE
        if not path.exists():
            return cls(path, {})
        try:
            found = json.loads(path.read_bytes())
        except (ValueError, RecursionError) as error:
            raise PackageError(
                f"{path} is no JSON: {error}", hint="remove it, or restore it"
            ) from None
        if not isinstance(found, dict) or found.get("schema") != _SCHEMA:
            raise PackageError(
                f"{path} has another form than schema {_SCHEMA}",
                hint="remove it; the next build writes it anew",
            )
        return cls(path, {key: value for key, value in found.items() if key != "schema"})

    def compare(self, found: Facts) -> tuple[Drift, ...]:
        """Return where what was found deviates; what the lock does not know is no drift.

        Examples
        --------
        >>> from pathlib import Path
        >>> from kernelmill.package.toolchain_lock import ToolchainLock
        >>> lock = ToolchainLock(Path("x"), {"host-compiler": {"version": "12.2.0"}})
        >>> print(*lock.compare({"host-compiler": {"version": "14.1.0"}, "cuda": {}}))
        host-compiler version: locked is 12.2.0, found 14.1.0
        """
        return tuple(_differences(self.facts, found, ""))

    def check(self, found: Facts, policy: Policy) -> tuple[Drift, ...]:
        """Return the drift that a build records; none is recorded where the lock is updated.

        Raises
        ------
        ToolchainError
            The policy is "refuse" and something deviates or is not locked.
        """
        drift = self.compare(found)
        if policy != "refuse":
            return () if policy == "update" else drift
        missing = [part for part in _leaves(found, "") if part not in set(_leaves(self.facts, ""))]
        lines = [*map(str, drift), *(f"{part}: not locked" for part in missing)]
        if lines:
            listed = "\n".join(f"  {line}" for line in lines)
            raise ToolchainError(
                f"this is not the toolchain of {FILE}:\n{listed}",
                hint="build with the locked one, or `kernelmill build --update-lock`",
            )
        return ()

    def write(self, found: Facts, policy: Policy) -> None:
        """Add what was found; what is there stays, unless the lock is updated."""
        merged = _merge(self.facts, found, keep=policy != "update")
        if merged != self.facts:
            text = json.dumps({"schema": _SCHEMA, **merged}, indent=1, sort_keys=True) + "\n"
            replace_file(self.path, text)


def _differences(locked: Facts, found: Facts, place: str) -> list[Drift]:
    drift = []
    for key in sorted(found.keys() & locked.keys()):
        mine, theirs = locked[key], found[key]
        part = f"{place} {key}".strip()
        if isinstance(mine, dict) and isinstance(theirs, dict):
            drift += _differences(mine, theirs, part)
        elif mine != theirs:
            drift.append(Drift(part, str(mine), str(theirs)))
    return drift


def _leaves(facts: Facts, place: str) -> list[str]:
    parts = []
    for key, value in sorted(facts.items()):
        part = f"{place} {key}".strip()
        parts += _leaves(value, part) if isinstance(value, dict) else [part]
    return parts


def _merge(old: Facts, new: Facts, *, keep: bool) -> Facts:
    merged = dict(old)
    for key, value in new.items():
        before = merged.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[key] = _merge(before, value, keep=keep)
        elif before is None or not keep:
            merged[key] = value
    return merged
