"""What the files of the command line share: how a verb runs, how it prints. No verbs here."""

from __future__ import annotations

import logging
import os
import sys
import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from kernelmill.config import get_config
from kernelmill.errors import CacheWarning, KernelmillError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

__all__ = [
    "FAULT",
    "JSON",
    "OK",
    "USER_ERROR",
    "Program",
    "Verb",
    "help_alone",
    "print_json",
    "print_lines",
    "print_section",
    "project_option",
    "size_text",
    "table_lines",
]

OK: Final = 0
USER_ERROR: Final = 1
FAULT: Final = 2


# ----------------------------------------------------------------------------- how a verb runs


class Program(click.Group):
    """The program: turns exceptions into texts on stderr and exit statuses."""

    def main(self, *args: Any, **extra: Any) -> Any:  # Any: click's own signature
        """Run a command line and exit."""
        extra["standalone_mode"] = False
        try:
            status = super().main(*args, **extra)
        except click.exceptions.Abort:
            _say_error("interrupted")
            status = USER_ERROR
        except click.ClickException as error:
            _say_usage_error(error)
            status = USER_ERROR
        except KernelmillError as error:
            _say_error(str(error))
            _say_traceback()
            status = USER_ERROR
        except OSError as error:  # a full disk, a directory without rights
            name = error.filename2 or error.filename  # of a copy, where to
            place = f" ({os.fsdecode(name)})" if isinstance(name, (str, bytes)) and name else ""
            _say_error(f"{(error.strerror or str(error)).lower()}{place}")
            _say_traceback()
            status = USER_ERROR
        except Exception as error:  # noqa: BLE001 - what nobody foresaw is said, and ends in status 2
            status = _say_fault(error)
        sys.exit(status if isinstance(status, int) else OK)


class Verb(click.Command):
    """A verb: reads the settings only when it really runs, so that help needs none."""

    def invoke(self, ctx: click.Context) -> Any:  # Any: click's own signature
        """Run the verb with its logger and colours set up."""
        config = get_config()
        if not config.color:
            ctx.color = False
        with _talking(config.log_level):
            return super().invoke(ctx)


@contextmanager
def _talking(level: str) -> Iterator[None]:
    """Send the log and the warnings of kernelmill to stderr, one line each."""
    logger = logging.getLogger("kernelmill")
    before = logger.level
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level.upper())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", CacheWarning)
            warnings.showwarning = _show_warning
            yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    click.echo(f"warning: {message}", err=True)


def _say_error(text: str) -> None:
    click.echo(f"error: {text}", err=True)


def _say_usage_error(error: click.ClickException) -> None:
    context = error.ctx if isinstance(error, click.UsageError) else None
    message = error.format_message().rstrip(".")
    text = message[:1].lower() + message[1:]
    _say_error(f"{text}\n\nhint: see `{context.command_path} --help`" if context else text)


def _say_traceback() -> None:
    if _wants_traceback():
        click.echo(traceback.format_exc(), err=True)


def _wants_traceback() -> bool:
    try:
        return get_config().log_level == "debug"
    except KernelmillError:
        return False


def _say_fault(error: Exception) -> int:
    _say_error(
        f"unexpected {type(error).__name__}: {error}\n\n"
        "hint: this is a fault of kernelmill; KERNELMILL_LOG=debug shows where it happened"
    )
    _say_traceback()
    return FAULT


JSON: Final[Callable[[Any], Any]] = click.option(  # Any: a decorator of any function
    "--json", "as_json", is_flag=True, help="Print one JSON object."
)


def project_option(file: str) -> Callable[[Any], Any]:  # Any: a decorator of any function
    """Return the option --project: the nearest directory that holds `file`, from here upwards."""

    def nearest(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str:
        if value is not None:
            return value
        from kernelmill.package.root import project_root

        return str(project_root(file))

    return click.option(
        "--project",
        type=click.Path(file_okay=False, exists=True),
        callback=nearest,
        help=f"The directory with {file}; else the nearest one that has it, from here upwards.",
    )


def help_alone(context: click.Context) -> None:
    """Print the help of a group that was called without a verb."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


# ----------------------------------------------------------------------------- printing


def print_section(title: str, lines: Iterable[str]) -> None:
    """Print a title and lines below it."""
    click.echo(click.style(title, bold=True))
    for line in lines:
        click.echo(f"  {line}")


def print_lines(lines: Iterable[str]) -> None:
    """Print lines."""
    for line in lines:
        click.echo(line)


def table_lines(
    rows: Sequence[Sequence[str]], *, head: Sequence[str] = (), numbers_from: int | None = None
) -> Iterator[str]:
    """Yield lines of columns as wide as they need; numbers stand to the right."""
    everything = [head, *rows] if head else list(rows)
    widths = [max(map(len, column)) for column in zip(*everything, strict=True)]
    first_number = len(widths) if numbers_from is None else numbers_from
    for row in everything:
        cells = (
            cell.rjust(width) if index >= first_number else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  ".join(cells).rstrip()


_STEP: Final = 1024


def size_text(size: float) -> str:
    """Return a number of bytes as people read it."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < _STEP:
            return f"{size:.4g} {unit}"
        size /= _STEP
    return f"{size:.4g} TiB"


def print_json(value: object) -> None:
    """Print a value, dataclasses and paths included, as JSON."""
    import json

    click.echo(json.dumps(_plain(value), indent=2))


def _plain(value: Any) -> Any:  # Any: what JSON can write
    from dataclasses import fields, is_dataclass

    if is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
