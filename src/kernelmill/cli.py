"""The command line: one function a verb. It prints what other modules find out, nothing more.

stdout is data, stderr is talk. Exit status 0: done; 1: the user can mend it; 2: a fault of ours.
What a verb needs is imported when it runs, so that `--help` and `--version` answer at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kernelmill import cli_build, cli_hub, cli_lock, cli_make, cli_tune
from kernelmill.cli_parts import (
    JSON,
    Program,
    Verb,
    help_alone,
    print_json,
    print_lines,
    print_section,
    size_text,
    table_lines,
)
from kernelmill.errors import KernelmillError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from kernelmill.demo import Demo, Row
    from kernelmill.doctor import Compiler, Folder, Report
    from kernelmill.installed import Extra

__all__ = ["main"]


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:  # noqa: FBT001
    if wanted and not context.resilient_parsing:
        from importlib.metadata import version

        click.echo(f"kernelmill {version('kernelmill')}")
        context.exit()


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
@click.pass_context
def main(context: click.Context) -> None:
    """Write, run, build, version, lock and ship compute kernels."""
    help_alone(context)


# ----------------------------------------------------------------------------- kernelmill doctor


@main.command(cls=Verb)
@JSON
@click.option("--warm", is_flag=True, help="Compile a kernel, so that later first calls are quick.")
def doctor(*, as_json: bool, warm: bool) -> None:
    """Show devices, compilers, extras and settings, and what is missing.

    Exits with status 1 when there is no usable C++ compiler.
    """
    from kernelmill import doctor as facts

    warmth = facts.warm() if warm else None
    report = facts.examine(warmth=warmth)
    if as_json:
        print_json(report)
    else:
        for title, lines in _doctor_sections(report):
            print_section(title, lines)
    if not report.has_compiler:
        from kernelmill.toolchain import find_host_compiler

        find_host_compiler()  # raises, with the reasons and the hint


_WIDTH: Final = 88


def _doctor_sections(report: Report) -> Iterator[tuple[str, Iterable[str]]]:
    yield f"kernelmill {report.version}, Python {report.python}, {report.platform}", ()
    yield "devices", _device_lines(report)
    yield "compilers (* is used)", table_lines([_compiler_row(c) for c in report.compilers])
    yield "extras", (line for extra in report.extras for line in _extra_lines(extra))
    yield "conflicts between CUDA wheels", _conflict_lines(report)
    yield "cache", _cache_lines(report.cache, report.folders)
    yield "native call path", _native_lines(report)
    if report.unknown_variables:
        yield (
            "unknown variables",
            table_lines(
                [(row.variable, f"did you mean {row.nearest}?") for row in report.unknown_variables]
            ),
        )
    if report.missing:
        yield "to install what is missing", report.missing
    if report.warmth is not None:
        state = "compiled" if report.warmth.compiled else "was in the cache already"
        yield "warm", [f"a kernel {state}: {report.warmth.seconds:.2f} s"]


def _device_lines(report: Report) -> Iterator[str]:
    cpu, cuda = report.cpu, report.cuda
    caches = ", ".join(f"L{c.level} {c.kind} {size_text(c.bytes)}" for c in cpu.caches)
    target = "" if cpu.march == "native" else f", compiled for {cpu.march}"
    yield f"cpu       {cpu.model}, {cpu.threads} threads, {cpu.instruction_set}{target}"
    yield f"          caches: {caches or 'unknown'}"
    driver = cuda.driver or "not found"
    driver += f" (CUDA {cuda.version})" if cuda.version else ""
    yield f"cuda      {cuda.reason or 'usable'}"
    yield f"          driver library: {driver}; cuda.bindings: {cuda.bindings or 'not installed'}"
    for library in cuda.libraries:
        found = f"{library.version}, {library.path} ({library.found_via})"
        yield f"          {library.name}: {found if library.path else 'not found'}"
    yield f"emulator  {report.emulator or 'usable'}"


def _compiler_row(compiler: Compiler) -> Sequence[str]:
    mark = "*" if compiler.chosen else " "
    if compiler.reason:
        return mark, compiler.name, "cannot be used", compiler.reason
    return mark, compiler.name, compiler.target, " ".join(compiler.command)


def _extra_lines(extra: Extra) -> Iterator[str]:
    from textwrap import wrap

    needs = (
        f"{need.name} {need.version or 'missing'}"
        + ("" if need.satisfied or not need.version else f" (needs {need.specifier})")
        for need in extra.needs
    )
    yield f"{extra.name:10}{'installed' if extra.complete else extra.install}"
    for line in wrap(", ".join(needs), width=_WIDTH, break_on_hyphens=False):
        yield f"{'':10}{line}"


def _conflict_lines(report: Report) -> Iterator[str]:
    if not report.conflicts:
        yield "none"
    for conflict in report.conflicts:
        yield f"found:   {conflict.found}"
        yield f"breaks:  {conflict.breaks}"
        yield f"mend:    {conflict.mend}"


def _native_lines(report: Report) -> Iterator[str]:
    if report.native.kind == "extension":
        yield "compiled extension"
    else:
        yield f"pure-Python twin: {report.native.reason}"


# ----------------------------------------------------------------------------- kernelmill cache


@main.group(invoke_without_command=True)
@click.pass_context
def cache(context: click.Context) -> None:
    """Show or empty the cache of compiled kernels."""
    help_alone(context)


@cache.command(cls=Verb)
@JSON
def info(*, as_json: bool) -> None:
    """Show where compiled kernels are kept, and how many."""
    from kernelmill.cache import default_cache
    from kernelmill.doctor import folders

    found = default_cache().info()
    beside = folders(found.root)
    if as_json:
        print_json({"cache": found, "folders": beside})
    else:
        print_lines(_cache_lines(found, beside))


def _cache_lines(found: Any, beside: Sequence[Folder]) -> Iterator[str]:
    # Any: a CacheInfo, whose module this one imports only in a verb.
    from datetime import UTC, datetime

    yield f"directory   {found.root}"
    if found.problem:
        yield f"problem     {found.problem}; each process keeps its own kernels until it ends"
    if found.private is not None:
        yield f"in use      {found.private}"
    most = size_text(found.max_bytes)
    yield f"kernels     {found.entries}, {size_text(found.bytes)} of at most {most}"
    if found.newest is not None:
        yield f"last used   {datetime.fromtimestamp(found.newest, UTC):%Y-%m-%d %H:%M} UTC"
    for folder in beside:
        size = size_text(folder.bytes)
        yield f"{folder.path.name + '/':10}  {folder.holds}: {folder.files} files, {size}"


@cache.command(cls=Verb)
def clear() -> None:
    """Remove all compiled kernels, and what is remembered of compilers."""
    from kernelmill.cache import default_cache
    from kernelmill.doctor import clear_folders

    store = default_cache()
    removed = store.clear()
    lines = [f"removed {removed.entries} kernels, {size_text(removed.bytes)}"]
    if removed.leftovers:
        lines.append(f"removed {removed.leftovers} leftovers of processes that were ended")
    for folder in clear_folders(store.root):
        if folder.kept:
            click.echo(f"warning: {folder.path} was kept: {folder.kept}", err=True)
        else:
            size = size_text(folder.bytes)
            lines.append(f"removed {folder.path.name}/: {folder.files} files, {size}")
    print_lines(lines)


# ----------------------------------------------------------------------------- kernelmill demo


@main.command(cls=Verb)
@click.option(
    "--output",
    type=click.Path(file_okay=False),
    default="demo-output",
    show_default=True,
    help="Directory for the pictures.",
)
@click.option(
    "--picture",
    type=click.Path(exists=True, dir_okay=False),
    help="A picture to use in place of the photograph that comes with kernelmill.",
)
@JSON
def demo(*, output: str, picture: str | None, as_json: bool) -> None:
    """Run the main job on a photograph and compare it with NumPy.

    Grayscale, statistics, a contrast stretch and a gamma curve, at the size of the picture and
    tiled to many millions of pixels; on the GPU where there is one. Exits with status 1 when a
    result differs from NumPy's.
    """
    from pathlib import Path

    from kernelmill.demo import run_demo
    from kernelmill.pictures import PHOTOGRAPH, load_picture

    click.echo("this takes about ten seconds", err=True)
    pixels = load_picture(Path(picture) if picture else PHOTOGRAPH)
    found = run_demo(pixels, Path(output))
    if as_json:
        print_json(_demo_record(found))
    else:
        print_lines(_demo_lines(found))
    _say_pictures(found.pictures)
    if found.failures:
        worst = "; ".join(
            f"{row.step}, {row.pixels} pixels: by {row.error:g}, at most {row.tolerance:g}"
            for row in found.failures
        )
        raise KernelmillError(
            f"{len(found.failures)} of {len(found.rows)} results differ from NumPy's: {worst}",
            hint="`kernelmill doctor` shows the compiler; another one is tried with KERNELMILL_CXX",
        )


# ----------------------------------------------------------------------------- kernelmill run


@main.command(cls=Verb, context_settings={"allow_interspersed_args": False})
@click.option("--sanitize", is_flag=True, help="Look for races, bounds and deadlocks.")
@click.option(
    "--order",
    type=click.Choice(["in order", "reversed", "random"]),
    default="in order",
    show_default=True,
    help="In which order threads and live blocks take turns.",
)
@click.option("--seed", type=click.IntRange(0), default=0, help="Of the random order.")
@click.option("--blocks", type=click.IntRange(0), default=0, help="Blocks that are live at once.")
@click.option(
    "--with",
    "others",
    type=click.Path(exists=True, dir_okay=False),
    multiple=True,
    help="A further file of the program, .cu or .cpp; can be repeated.",
)
@click.option(
    "-I",
    "--include",
    "directories",
    type=click.Path(exists=True, file_okay=False),
    multiple=True,
    help="A directory for `#include`; can be repeated.",
)
@click.option(
    "-D", "--define", "defines", multiple=True, help="A macro, NAME or NAME=VALUE; can be repeated."
)
@click.argument("program", type=click.Path(exists=True, dir_okay=False))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(
    *,
    program: str,
    arguments: tuple[str, ...],
    others: tuple[str, ...],
    directories: tuple[str, ...],
    defines: tuple[str, ...],
    sanitize: bool,
    order: Any,
    seed: int,
    blocks: int,
) -> int:
    """Run a CUDA program, host code and all, on the emulator.

    Options stand before the file; what follows it goes to its `main`. Exits with the status of the
    program, or with 1 when the sanitizer found something.
    """
    from signal import Signals

    from kernelmill.runtime.emulator import Sanitizer, Schedule, run_program, scheduled
    from kernelmill.toolchain.nvrtc import CudaOptions

    with scheduled(Schedule(order, seed, blocks)):
        done = run_program(
            program,
            arguments,
            others=others,
            options=CudaOptions(contract=True, defines=defines, include_dirs=directories),
            sanitizer=Sanitizer() if sanitize else None,
        )
    for report in done.reports:
        click.echo(str(report), err=True)
    if done.reports:
        count = len(done.reports)
        raise KernelmillError(f"the sanitizer made {count} report{'s' if count > 1 else ''}")
    if done.returncode < 0:  # as a shell tells it
        click.echo(f"error: the program was ended by {Signals(-done.returncode).name}", err=True)
        return 128 - done.returncode
    return done.returncode


_DEMO_HEAD: Final = (
    "step", "pixels", "device", "compile s", "ms", "GB/s", "of roofline", "x NumPy", "difference",
)  # fmt: skip


def _demo_lines(found: Demo) -> Iterator[str]:
    yield from table_lines([_demo_row(row) for row in found.rows], head=_DEMO_HEAD, numbers_from=3)
    yield from found.notes
    s, r = found.statistics, found.roofline
    yield f"grayscale: mean {s.mean:.2f}, minimum {s.minimum}, maximum {s.maximum}"
    where = f"with {r.threads} threads" if found.device == "cpu" else f"on {found.device}"
    yield (
        f"roofline, measured {where}: copy {r.copy_bytes_per_second / 1e9:.1f}, "
        f"read {r.read_bytes_per_second / 1e9:.1f} GB/s; - where the caches hold the arrays"
    )


def _demo_row(row: Row) -> Sequence[str]:
    share = "-" if row.share is None else f"{row.share:.0%}"
    compiled = f"{row.compile_seconds:.2f}" if row.compile_seconds else "cached"
    return (
        row.step,
        str(row.pixels),
        row.device,
        compiled,
        f"{row.seconds * 1e3:.3f}",
        f"{row.bandwidth / 1e9:.1f}",
        share,
        f"{row.speedup:.1f}",
        f"{row.error:g}" + ("" if row.passed else " FAILED"),
    )


def _demo_record(found: Demo) -> dict[str, object]:
    from dataclasses import asdict

    derived = ("passed", "bandwidth", "share", "speedup")
    rows = [asdict(row) | {name: getattr(row, name) for name in derived} for row in found.rows]
    return {
        "passed": not found.failures,
        "rows": rows,
        "statistics": found.statistics,
        "roofline": found.roofline,
        "device": found.device,
        "notes": found.notes,
        "pictures": found.pictures,
    }


def _say_pictures(pictures: Iterable[Path]) -> None:
    for path in pictures:
        click.echo(f"wrote {path}", err=True)


# ----------------------------------------------------------------------------- verbs of other files

for _verb in (*cli_build.VERBS, *cli_make.VERBS, *cli_hub.VERBS, *cli_lock.VERBS, *cli_tune.VERBS):
    main.add_command(_verb)
