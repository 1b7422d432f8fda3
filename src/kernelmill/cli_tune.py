"""The verb `tune`: measures rows of the tuning table on the GPU that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from kernelmill.cli_parts import JSON, Verb, print_json, print_lines, table_lines

if TYPE_CHECKING:
    from kernelmill.algorithms.tuning import Trial

__all__ = ["VERBS"]


@click.command(cls=Verb)
@click.argument("family", type=click.Choice(["scan", "select"]))
@click.option("--elements", default=1 << 26, show_default=True, help="How many at a time.")
@click.option("--store", "stored", is_flag=True, help="Keep better rows for this user.")
@JSON
def tune(*, family: str, elements: int, stored: bool, as_json: bool) -> None:
    """Try other rows of the tuning table on this machine's GPU.

    FAMILY is scan or select. Variants that do not compile or do not run are shown with their
    error. With --store, rows that win by more than noise are used from the next process on.
    """
    from kernelmill.algorithms.tuning import better_of, store
    from kernelmill.algorithms.tuning import tune as tried

    trials = list(tried(family, elements=elements))
    better = better_of(trials)
    if as_json:
        print_json([_record(trial, better) for trial in trials])
    else:
        print_lines(table_lines([_line(trial, better) for trial in trials], head=_HEAD))
    if not better:
        click.echo("no variant is better than the rows that hold", err=True)
    elif stored:
        click.echo(f"stored {len(better)} rows in {store(better)}", err=True)
    else:
        click.echo("keep the better rows with --store", err=True)


_HEAD: Final = ("bytes", "reducers", "stages", "microseconds", "")


def _line(trial: Trial, better: tuple[object, ...]) -> tuple[str, ...]:
    row = trial.row
    told = "-" if trial.seconds is None else f"{trial.seconds * 1e6:.1f}"
    note = "holds" if trial.is_best_known else "better" if row in better else trial.error
    return (str(row.largest), str(row.reducers), str(row.stages), told, note)


def _record(trial: Trial, better: tuple[object, ...]) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "row": asdict(trial.row),
        "seconds": trial.seconds,
        "error": trial.error,
        "better": trial.row in better,
    }


VERBS: Final = (tune,)
