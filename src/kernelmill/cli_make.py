"""The verbs that make things of a kernel project: build, dev, shell, wheel. They print, no more."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from kernelmill.cli_parts import JSON, Verb, print_json, project_option, size_text, table_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kernelmill.package.build import Built
    from kernelmill.package.matrix import Entry, Project

__all__ = ["VERBS"]

_JOBS: Final[Callable[[Any], Any]] = click.option(
    "--jobs", "-j", type=click.IntRange(1, 4096), help="Compilers at once; one a processor."
)


# ----------------------------------------------------------------------------- kernelmill build


@click.command(cls=Verb)
@project_option("build.toml")
@click.option("--variant", "variants", multiple=True, help="A variant, or a pattern with *.")
@click.option("--all", "everything", is_flag=True, help="All variants that can be built here.")
@click.option("--list", "only_list", is_flag=True, help="Print the variants and build none.")
@click.option("--torch", help="What a system with this torch loads, such as 2.12.")
@click.option("--cuda", help="What a system with this CUDA loads, such as 12.8.")
@click.option("--arch", "archs", multiple=True, help="A compute capability, such as 9.0.")
@click.option("--locked", is_flag=True, help="Refuse another toolchain than toolchain.lock's.")
@click.option("--update-lock", is_flag=True, help="Write toolchain.lock anew.")
@click.option("--no-cache", is_flag=True, help="Compile everything.")
@click.option("--precompiled", is_flag=True, help="Compile torch's headers once, for edits.")
@click.option("--verbose", "-v", is_flag=True, help="Print every command and its output.")
@_JOBS
@JSON
def build(*, project: str, only_list: bool, as_json: bool, verbose: bool, **how: Any) -> int:
    """Build variants of a kernel: this machine's, unless others are named."""
    from pathlib import Path

    from kernelmill.package.matrix import read_project

    found = read_project(Path(project))
    if only_list:
        _list(found, how, as_json=as_json)
        return 0
    chosen = _chosen(found, how)
    built = _build(found, chosen, how)
    if verbose:
        for one in built:
            click.echo(one.log.read_text(encoding="utf-8", errors="replace"), err=True, nl=False)
    _report(built, as_json=as_json)
    return 0


def _chosen(project: Project, how: dict[str, Any]) -> list[Entry]:
    """Return the variants that the options name, and say which of all cannot be built."""
    from kernelmill.package.select import select

    selection = select(
        project,
        variants=how["variants"],
        everything=how["everything"],
        torch=how["torch"],
        cuda=how["cuda"],
    )
    for entry in selection.refused:
        click.echo(f"left out {entry.variant}: {entry.refusal}", err=True)
    return list(selection.entries)


def _build(project: Project, chosen: Sequence[Entry], how: dict[str, Any]) -> list[Built]:
    from kernelmill.config import get_config
    from kernelmill.package.build import Options, build

    policy: Any = "refuse" if how["locked"] else "update" if how["update_lock"] else "record"
    options = Options(
        jobs=how["jobs"] or get_config().threads(),
        archs=tuple(how["archs"]) or None,
        policy=policy,
        use_cache=not how["no_cache"],
        precompiled=how["precompiled"],
    )
    # A request to end is an interruption too: else the compilers would go on without us.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _progress(len(chosen)) as tell:
            return build(project, chosen, options, tell=tell)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(count: int) -> Iterator[Callable[[str, str], None]]:
    """Show a line on a terminal: how many variants are done, and what was compiled last."""
    done = 0

    def tell(variant: str, step: str) -> None:
        nonlocal done
        done += step == "done"
        if shown:
            filled = "=" * (20 * done // max(1, count))
            text = f"[{filled:<20}] {done}/{count}  {variant}  {step}"
            click.echo(f"\r\x1b[K{text[:100]}", err=True, nl=False)

    shown = sys.stderr.isatty()
    try:
        yield tell
    finally:
        if shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def _report(built: Sequence[Built], *, as_json: bool) -> None:
    for one in built:
        for drift in one.drift:
            click.echo(f"warning: {one.variant}: {drift}", err=True)
        if one.warnings:
            click.echo(one.warnings, err=True, nl=False)
    if as_json:
        print_json([_record(one) for one in built])
        return
    rows = [
        (
            one.variant,
            "unchanged" if one.unchanged else "built",
            f"{one.compiled} compiled",
            f"{one.reused} reused",
            size_text(one.bytes),
            f"{one.seconds:.2f} s",
        )
        for one in built
    ]
    for line in table_lines(rows, numbers_from=2):
        click.echo(line)


def _record(one: Built) -> dict[str, object]:
    return {
        "variant": one.variant,
        "path": one.path,
        "id": one.identifier,
        "unchanged": one.unchanged,
        "compiled": one.compiled,
        "reused": one.reused,
        "bytes": one.bytes,
        "seconds": round(one.seconds, 3),
        "log": one.log,
        "drift": [str(drift) for drift in one.drift],
        "warnings": one.warnings,
    }


def _list(project: Project, how: dict[str, Any], *, as_json: bool) -> None:
    from kernelmill.package.matrix import entries, machine_entries

    everything = entries(project)
    if how["variants"] or how["torch"] or how["cuda"]:
        everything = tuple(_chosen(project, how))
    mine = {entry.variant for entry in machine_entries(project)}
    if as_json:
        print_json(
            [
                {
                    "variant": str(entry.variant),
                    "manifest": entry.file,
                    "here": entry.variant in mine,
                    "refusal": entry.refusal,
                }
                for entry in everything
            ]
        )
        return
    for entry in everything:
        note = f"not built: {entry.refusal}" if entry.refusal else ""
        here = "this machine's" if entry.variant in mine else note
        click.echo(f"{entry.variant}  {here}".rstrip())


# ----------------------------------------------------------------------------- kernelmill dev


@click.command(cls=Verb)
@project_option("build.toml")
@click.option("--once", is_flag=True, help="Build, install the hook and return.")
@click.option("--remove", is_flag=True, help="Take the hook out of this environment.")
def dev(*, project: str, once: bool, remove: bool) -> None:
    """Make the kernel importable here from its sources, and build it whenever they change.

    In a running Python, `importlib.reload(NAME)` loads what changed.
    """
    from pathlib import Path

    from kernelmill.package import watch
    from kernelmill.package.matrix import read_project

    found = read_project(Path(project))
    name = found.manifest.general.python_name
    if remove:
        for path in watch.remove_hook(found):
            click.echo(f"removed {path}")
        return
    for path in watch.install_hook(found):
        click.echo(f"wrote {path}", err=True)
    click.echo(f"`import {name}` builds and loads {found.root}", err=True)
    for event in watch.follow(found.root, once=once):
        click.echo(str(event), err=event.failed)


# ----------------------------------------------------------------------------- kernelmill shell


@click.command(cls=Verb, context_settings={"allow_interspersed_args": False})
@project_option("build.toml")
@click.option("--torch", help="A version of torch, such as 2.12.")
@click.option("--fresh", is_flag=True, help="Make the environment anew.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def shell(*, project: str, torch: str | None, fresh: bool, command: tuple[str, ...]) -> None:
    """Run a shell, or a command, where that torch, the build tools and the project are there."""
    from pathlib import Path

    from kernelmill.config import child_environment
    from kernelmill.package.matrix import read_project
    from kernelmill.package.shell import environment_of, lacks_torch

    found = read_project(Path(project))
    made = environment_of(found, torch, fresh=fresh)
    click.echo(f"environment: {made.path}", err=True)
    if lacks_torch(found, torch):
        click.echo("note: there is no torch in it; --torch VERSION installs one", err=True)
    made.execute(command or (child_environment().get("SHELL", "/bin/sh"),))


# ----------------------------------------------------------------------------- kernelmill wheel


@click.command(cls=Verb)
@project_option("build.toml")
@click.option("--variant", "variants", multiple=True, help="A variant, or a pattern with *.")
@click.option(
    "--from",
    "directory",
    type=click.Path(file_okay=False, exists=True),
    help="A variant's directory, or a repository with `build/`, that somebody else built.",
)
@click.option("--out", type=click.Path(file_okay=False), default="dist", show_default=True)
@JSON
def wheel(
    *, project: str, variants: tuple[str, ...], directory: str | None, out: str, as_json: bool
) -> None:
    """Make wheels of built variants, with tags that say what they need."""
    from pathlib import Path

    from kernelmill.package.wheel import variant_directories, wheel_of_variant

    root = Path(directory) if directory else Path(project)
    made = [wheel_of_variant(one, Path(out)) for one in variant_directories(root, variants)]
    if as_json:
        print_json(made)
        return
    for one in made:
        click.echo(one.path)


VERBS: Final[tuple[click.Command, ...]] = (build, dev, shell, wheel)
