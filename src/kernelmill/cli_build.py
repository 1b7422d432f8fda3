"""The verbs of kernel projects: new, migrate, clean and what builds, tests and checks them.

Like every verb they print what `kernelmill.package` finds out, and import it when they run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from kernelmill.cli_parts import JSON, Verb, print_json

__all__ = ["VERBS"]

if TYPE_CHECKING:
    from collections.abc import Callable

PROJECT: Final[Callable[[Any], Any]] = click.option(  # Any: a decorator of any function
    "--project",
    type=click.Path(file_okay=False, exists=True),
    default=".",
    show_default=True,
    help="The directory with build.toml.",
)


# ----------------------------------------------------------------------------- kernelmill migrate


@click.command(cls=Verb)
@PROJECT
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


VERBS: Final[tuple[click.Command, ...]] = (migrate,)
