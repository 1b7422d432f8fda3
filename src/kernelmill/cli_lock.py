"""The verbs of versions and locks: versions, lock, why. What they lock, `sync` fetches.

Like every verb they print what `kernelmill.package` finds out, and import it when they run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from kernelmill.cli_hub import BACKEND, REGISTRY, shelves_for
from kernelmill.cli_parts import JSON, Verb, print_json, project_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelmill.package.lock import Lock
    from kernelmill.package.versions import Surveyed

__all__ = ["VERBS"]


# ----------------------------------------------------------------------------- kernelmill versions


@click.command(cls=Verb)
@click.argument("repo_id", metavar="ORG/NAME")
@REGISTRY
@BACKEND
@click.option("--no-index", is_flag=True, help="Ask each branch, rather than the index on main.")
@JSON
def versions(
    *, repo_id: str, registry: str, backend: str | None, no_index: bool, as_json: bool
) -> None:
    """Show each version of a kernel, and of each variant whether this machine loads it."""
    from kernelmill.package.routed import Routed
    from kernelmill.package.system import here
    from kernelmill.package.versions import survey

    shelves = shelves_for(registry, backend, offline=False)
    found = survey(Routed(shelves), repo_id, index=not no_index, system=here(backend))
    if as_json:
        print_json({"repo_id": repo_id, "versions": [one.to_json() for one in found]})
        return
    for one in found:
        for line in _version_lines(one):
            click.echo(line)
    if not found:
        click.echo(f"{repo_id} has no versions: no branch is called v1, v2, ...", err=True)


def _version_lines(one: Surveyed) -> Iterator[str]:
    names = ", ".join(filter(None, (one.published.branch, one.published.tag)))
    yield f"{one.published}  {one.published.commit[:12]}  {names}".rstrip()
    best = one.choice.best
    for decision in one.choice.decisions:
        word = decision.reason or ("preferred" if decision.variant == best else "compatible")
        yield f"  {decision.variant}: {word}"
    for name in one.choice.unreadable:
        yield f"  {name}: no name of a variant"


# ----------------------------------------------------------------------------- kernelmill lock


@click.command(cls=Verb)
@project_option("pyproject.toml")
@REGISTRY
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 if the lock does not hold.")
@click.option("--upgrade", is_flag=True, help="Take the newest versions, whatever was locked.")
@click.option(
    "--upgrade-kernel", "some", multiple=True, metavar="ORG/NAME", help="Only of this one."
)
@click.option("--offline", is_flag=True, help="With --check: compare files alone, ask no registry.")
@JSON
def lock(
    *,
    project: str,
    registry: str,
    check: bool,
    upgrade: bool,
    some: tuple[str, ...],
    offline: bool,
    as_json: bool,
) -> None:
    """Write kernelmill.lock and kernels.lock for the kernels that pyproject.toml names.

    Versions that were locked stay as long as they meet what is asked. --check is for CI: it fails
    when pyproject.toml asks for something else, a lock was edited, or a branch or tag was moved.
    """
    from kernelmill.errors import ArgumentError
    from kernelmill.package.dependencies import read_dependencies
    from kernelmill.package.lock_make import check_lock, make_lock, write_lock
    from kernelmill.package.routed import Routed

    if offline and not check:
        raise ArgumentError("--offline is for --check: locking asks registries")
    place = Path(project)
    where = Routed(shelves_for(registry, None, offline=False, project=place))
    if check:
        held = check_lock(place, None if offline else where)
        _say_lock(held, None, as_json=as_json)
        click.echo(f"{place / 'kernelmill.lock'} holds", err=True)
        return
    before = _previous(place)
    made = make_lock(
        where, read_dependencies(place), previous=before, upgrade=True if upgrade else some
    )
    paths = write_lock(place, made)
    _say_lock(made.lock, before, as_json=as_json)
    click.echo(f"wrote {' and '.join(map(str, paths))}", err=True)


def _previous(place: Path) -> Lock | None:
    """Return the lock that is there; one that cannot be used is made anew, and that is said."""
    from kernelmill.errors import LockError
    from kernelmill.package.lock import FILE, read_lock

    if not (place / FILE).is_file():
        return None
    try:
        return read_lock(place / FILE)
    except LockError as error:
        click.echo(f"warning: {error.message}; it is made anew", err=True)
        return None


def _say_lock(held: Lock, before: Lock | None, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "kernels": [
                    {
                        "slot": slot,
                        "version": kernel.version,
                        "commit": kernel.commit,
                        "variants": list(kernel.variants),
                    }
                    for slot, kernel in held.kernels.items()
                ]
            }
        )
        return
    for slot, kernel in held.kernels.items():
        old = before.kernels.get(slot) if before is not None else None
        was = f", was {old.version} ({old.commit[:12]})" if old and old != kernel else ""
        new = ", new" if before is not None and old is None else ""
        click.echo(f"{slot} {kernel.version} ({kernel.commit[:12]}){was}{new}")
    for slot in sorted(before.kernels.keys() - held.kernels.keys()) if before is not None else ():
        click.echo(f"{slot} is not needed any more")


# ----------------------------------------------------------------------------- kernelmill why


@click.command(cls=Verb)
@click.argument("name", metavar="NAME")
@project_option("kernelmill.lock")
@JSON
def why(*, name: str, project: str, as_json: bool) -> None:
    """Show which dependency wants a kernel, or a Python package, in the project's lock."""
    from kernelmill.package.lock import FILE, read_lock
    from kernelmill.package.lock_why import why as find

    reasons = find(read_lock(Path(project) / FILE), name)
    if as_json:
        print_json(reasons)
        return
    for reason in reasons:
        for line in reason.lines():
            click.echo(line)


VERBS: Final[tuple[click.Command, ...]] = (versions, lock, why)
