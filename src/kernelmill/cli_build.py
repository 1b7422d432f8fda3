"""The verbs of kernel projects: new, migrate, clean and what builds, tests and checks them.

Like every verb they print what `kernelmill.package` finds out, and import it when they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kernelmill.cli_parts import (
    JSON,
    Verb,
    help_alone,
    print_json,
    print_lines,
    project_option,
    table_lines,
)

__all__ = ["VERBS"]

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernelmill.package.check import Report
    from kernelmill.package.project_bench import Result


# ----------------------------------------------------------------------------- kernelmill new


@click.command(cls=Verb)
@click.argument("name")
@click.option(
    "--framework",
    type=click.Choice(["torch", "classic", "tvm-ffi", "noarch"]),
    default="torch",
    show_default=True,
    help="torch: its stable ABI, one build for all versions; classic: one for each; tvm-ffi: for "
    "every framework with DLPack; noarch: Python alone.",
)
@click.option("--backends", default="cpu,cuda", show_default=True, help="Separated by commas.")
@click.option("--license", "licence", default="Apache-2.0", show_default=True)
@click.option(
    "--directory", type=click.Path(file_okay=False), help="Where; ./NAME unless it is given."
)
def new(*, name: str, framework: str, backends: str, licence: str, directory: str | None) -> None:
    """Write a kernel project that builds, passes its tests and is ready to be changed."""
    from pathlib import Path

    from kernelmill.package.scaffold import plan, write

    chosen = tuple(part.strip() for part in backends.split(",") if part.strip())
    made = plan(name, framework=framework, backends=chosen, licence=licence)
    place = Path(directory or name)
    write(made, place)
    print_lines(str(place / path) for path, _ in made.files)
    click.echo(f"\nnext: cd {place} && kernelmill build && kernelmill test", err=True)


# ----------------------------------------------------------------------------- kernelmill migrate


@click.command(cls=Verb)
@project_option("build.toml")
@click.option("--license", "licence", default="", help="Written where the manifest names none.")
@click.option("--dry-run", is_flag=True, help="Show the difference and write nothing.")
@JSON
def migrate(*, project: str, licence: str, dry_run: bool, as_json: bool) -> None:
    """Bring an older build.toml to edition 5, and show what changes."""
    from pathlib import Path

    from kernelmill.package.manifest import MANIFEST, read_toml
    from kernelmill.package.migrate import migrate as bring
    from kernelmill.package.whole_file import replace_file

    path = Path(project) / MANIFEST
    found = bring(read_toml(path), licence=licence)
    if found.changed and not dry_run:
        replace_file(path, found.text)
    if as_json:
        facts = {"form": found.form, "changed": found.changed, "comments_kept": found.kept}
        print_json(facts | {"notes": found.notes, "diff": found.diff()})
        return
    click.echo(found.diff(), nl=False)
    for note in found.notes:
        click.echo(f"note: {note}", err=True)
    if not found.changed:
        click.echo(f"{path} is edition 5 already", err=True)
    else:
        click.echo(f"{path} {'would be' if dry_run else 'was'} brought to edition 5", err=True)


# ----------------------------------------------------------------------------- kernelmill clean


@click.command(cls=Verb)
@project_option("build.toml")
@click.option("--dry-run", is_flag=True, help="Show what would be removed.")
def clean(*, project: str, dry_run: bool) -> None:
    """Remove what was built and generated; sources and the cache stay."""
    from pathlib import Path

    from kernelmill.package.clean import made_files, remove
    from kernelmill.package.manifest import read_manifest

    root = Path(project)
    read_manifest(root)  # nothing is removed from a directory that is no project
    for made in made_files(root):
        if made.kept:
            click.echo(f"warning: {made.path} was kept: {made.kept}", err=True)
            continue
        if not dry_run:
            remove(made)
        click.echo(f"{'would remove' if dry_run else 'removed'} {made.path}")


# ----------------------------------------------------------------------------- kernelmill check


@click.command(cls=Verb)
@click.argument("path", type=click.Path(file_okay=False, exists=True), required=False)
@click.option(
    "--manylinux",
    type=click.Choice(["2_17", "2_24", "2_28", "2_31", "2_34", "2_35", "2_39"]),
    default="2_28",
    show_default=True,
    help="The oldest systems on which it has to load.",
)
@click.option("--no-run", is_flag=True, help="Read files alone; run nothing of the variant.")
@click.option("--reproducible", is_flag=True, help="Build it twice more and compare every byte.")
@JSON
def check(
    *, path: str | None, manylinux: str, no_run: bool, reproducible: bool, as_json: bool
) -> None:
    """Find what in built variants breaks, and for whom.

    PATH is a project, a directory of variants or one variant, whoever built it; else the project
    here. Unless --no-run is given, variants for this machine are loaded, and called wrongly, in a
    process of their own. Exits with status 1 when something breaks.
    """
    from dataclasses import replace
    from pathlib import Path

    from kernelmill.errors import PackageError
    from kernelmill.package.check import check_variant, find_variants
    from kernelmill.package.check_reproducible import reproduce
    from kernelmill.package.root import project_root
    from kernelmill.package.system import here

    reports = []
    for variant in find_variants(Path(path) if path else project_root("build.toml")):
        report = check_variant(variant, here(), manylinux=manylinux, run=not no_run)
        if reproducible:
            more = reproduce(variant.resolve().parent.parent, variant.resolve())
            same = {} if more else {"reproducible": "two more builds gave the same bytes"}
            findings = (*report.findings, *more)
            report = replace(report, findings=findings, facts=report.facts | same)
        reports.append(report)
        if not as_json:
            print_lines(_report_lines(report))
    if as_json:
        print_json([{"passed": report.passed} | _record(report) for report in reports])
    failed = [report.variant for report in reports if not report.passed]
    if failed:
        raise PackageError(f"{len(failed)} of {len(reports)} variants break: {', '.join(failed)}")


def _report_lines(report: Report) -> Iterator[str]:
    yield f"{report.variant}  {'passed' if report.passed else 'breaks'}"
    for name, text in report.facts.items():
        yield f"  {name:15}  {text}"
    for finding in report.findings:
        place = f" ({finding.file})" if finding.file else ""
        yield f"  {finding.level}: {finding.rule}: {finding.message}{place}"
        if finding.breaks:
            yield f"    breaks: {finding.breaks}"
        if finding.hint:
            yield f"    hint: {finding.hint}"


def _record(report: Report) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(report)


# ----------------------------------------------------------------------------- kernelmill test


@click.command(cls=Verb, context_settings={"ignore_unknown_options": True})
@project_option("build.toml")
@click.option("--sanitize", is_flag=True, help="Look for races and bounds in CUDA programs.")
@click.option("--emulator", is_flag=True, help="Run CUDA programs there, GPU or not.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def test(*, project: str, sanitize: bool, emulator: bool, arguments: tuple[str, ...]) -> None:
    """Run the project's tests against what was built.

    Python tests import the variant for this machine by the kernel's name; ARGUMENTS go to pytest.
    CUDA programs, tests/*.cu, are linked with the project's kernels, and run on the emulator where
    there is no GPU. Exits with status 1 when one of them fails.
    """
    from pathlib import Path

    from kernelmill.errors import PackageError
    from kernelmill.package.matrix import read_project
    from kernelmill.package.project_tests import run_programs, run_python, untested, variant_for
    from kernelmill.runtime.devices import available_devices

    found = read_project(Path(project))
    variant = variant_for(found)
    gpu = any(name.startswith("cuda") for name in available_devices()) and not emulator
    outcomes = [
        run_python(found, variant, arguments),
        *run_programs(found, gpu=gpu, sanitize=sanitize),
    ]
    done = [outcome for outcome in outcomes if outcome is not None]
    for outcome in done:
        state = "passed" if outcome.passed else "failed"
        click.echo(f"{outcome.name}: {state} on {outcome.on}")
        if not outcome.passed:
            click.echo(outcome.said.rstrip(), err=True)
    for line in untested(found, variant, gpu=gpu):
        click.echo(f"note: {line}", err=True)
    failed = [outcome.name for outcome in done if not outcome.passed]
    if failed or not done:
        raise PackageError(
            f"{len(failed)} of {len(done)} failed: {', '.join(failed)}" if done else "no tests",
            hint="" if done else "tests/test_*.py and tests/*.cu are what is run",
        )


# ----------------------------------------------------------------------------- kernelmill bench


@click.command(cls=Verb)
@project_option("build.toml")
@click.option("--iterations", type=click.IntRange(1), default=100, show_default=True)
@click.option("--warmup", type=click.IntRange(0), default=10, show_default=True)
@JSON
def bench(*, project: str, iterations: int, warmup: int, as_json: bool) -> None:
    """Run the project's benchmarks against what was built.

    The results are kept beside the variant, as build/VARIANT.benchmarks.json. Exits with status 1
    when a result differs from what its verify method returns.
    """
    from pathlib import Path

    from kernelmill.errors import PackageError
    from kernelmill.package.matrix import read_project
    from kernelmill.package.project_bench import bench as measure
    from kernelmill.package.project_bench import results_path
    from kernelmill.package.project_tests import variant_for

    found = read_project(Path(project))
    variant = variant_for(found)
    results = measure(found, variant, warmup=warmup, iterations=iterations)
    if as_json:
        print_json(results)
    else:
        head = ("file", "benchmark", "median ms", "least ms", "difference")
        print_lines(table_lines([_bench_row(r) for r in results], head=head, numbers_from=2))
    click.echo(f"wrote {results_path(variant)}", err=True)
    failed = [result.benchmark for result in results if not result.passed]
    if failed:
        raise PackageError(
            f"{len(failed)} of {len(results)} results are wrong: {', '.join(failed)}"
        )


def _bench_row(result: Result) -> Sequence[str]:
    difference = "not verified" if result.difference is None else f"{result.difference:.1e}"
    times = (f"{result.median * 1e3:.4f}", f"{result.least * 1e3:.4f}")
    return (result.file, result.benchmark, *times, difference)


# ----------------------------------------------------------------------------- kernelmill generate


@click.group(invoke_without_command=True)
@click.pass_context
def generate(context: click.Context) -> None:
    """Write files for other build systems."""
    help_alone(context)


@generate.command(cls=Verb)
@project_option("build.toml")
@click.option("--variant", default="", help="Which one; this machine's unless it is named.")
def cmake(*, project: str, variant: str) -> None:
    """Write CMakeLists.txt, setup.py and what they need for one variant, and compile_commands.json.

    CMake then builds a variant that loads like any other; it is for work with editors and
    debuggers: symbols are not pinned to old systems, and the files have no digest.
    """
    from pathlib import Path

    from kernelmill.errors import PackageError
    from kernelmill.package.generate_cmake import generate as make
    from kernelmill.package.matrix import entries, machine_entries, read_project

    found = read_project(Path(project))
    everything = entries(found)
    chosen = (
        [e for e in everything if str(e.variant) == variant] if variant else machine_entries(found)
    )
    if not chosen:
        names = "\n".join(f"  {entry.variant}" for entry in everything)
        raise PackageError(
            f"there is no variant {variant or 'for this machine'}; there are\n{names}"
        )
    for made in make(found, chosen[0]):
        if made.kept:
            click.echo(f"warning: {made.path} was kept: {made.kept}", err=True)
        else:
            click.echo(str(made.path))


VERBS: Final[tuple[click.Command, ...]] = (new, migrate, clean, check, test, bench, generate)
