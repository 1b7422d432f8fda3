"""The settings of kernelmill: one frozen `Config`, read from the environment here and nowhere else.

What a setting does is decided by the module that uses it; no directory is made and no compiler is
looked for here. A new setting is one more field of `Config`: name, type, variable, parser, what is
accepted, default and a line of documentation stand together, and the reference page, the command
`kernelmill doctor` and the error texts are all made from them.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_type_hints

from kernelmill.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "Config",
    "Knob",
    "UnknownVariable",
    "child_environment",
    "get_config",
    "knobs",
    "override",
    "reload",
    "unknown_variables",
]

PREFIX: Final = "KERNELMILL_"
LOG_LEVELS: Final = ("debug", "info", "warning", "error", "critical")
_MAX_THREADS: Final = 4096
_MAX_SECONDS: Final = 86400.0
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_DEVICE: Final = re.compile(r"auto|cpu|emulator|null|cuda(:\d+)?", re.ASCII)
_MARCH: Final = re.compile(r"[a-z0-9][a-z0-9_.+-]*", re.IGNORECASE | re.ASCII)
_SCALE: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SWITCH: Final = {
    **dict.fromkeys(("1", "true", "yes", "on"), True),
    **dict.fromkeys(("0", "false", "no", "off"), False),
}


# ------------------------------------------------------------------- parsers: text -> value
# Each raises ValueError; the text that the user sees is made in one place, by `_read`.


def _parse_directory(text: str) -> Path:
    """Make the path absolute at once: a later `chdir` must not move the cache."""
    return Path(os.path.abspath(os.path.expanduser(text)))  # noqa: PTH100, PTH111 - "~nobody" stays


def _parse_size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(text)
    number, unit = match.groups()
    return (
        int(float(number) * _SCALE[unit.lower()])
        if "." in number
        else int(number) * _SCALE[unit.lower()]
    )


def _parse_command(text: str) -> str:
    command = text.strip()
    if not command or not command.isprintable():
        raise ValueError(text)
    return command


def _parse_seconds(text: str) -> float:
    seconds = float(text)
    if not (math.isfinite(seconds) and 0.0 < seconds <= _MAX_SECONDS):
        raise ValueError(text)
    return seconds


def _parse_march(text: str) -> str:
    if not _MARCH.fullmatch(text):
        raise ValueError(text)
    return text


def _parse_threads(text: str) -> int:
    threads = int(text) if text.strip().isdecimal() else 0
    if not 1 <= threads <= _MAX_THREADS:
        raise ValueError(text)
    return threads


def _parse_switch(text: str) -> bool:
    try:
        return _SWITCH[text.strip().lower()]
    except KeyError:
        raise ValueError(text) from None


def _parse_no_color(_: str) -> bool:
    """Any non-empty value switches colour off (https://no-color.org)."""
    return False


def _parse_device(text: str) -> str:
    if not _DEVICE.fullmatch(text):
        raise ValueError(text)
    return text


def _parse_level(text: str) -> str:
    level = text.strip().lower()
    if level not in LOG_LEVELS:
        raise ValueError(text)
    return level


def _parse_text(text: str) -> str:
    if not text.isprintable():
        raise ValueError(text)
    return text


def _parse_endpoint(text: str) -> str:
    if not re.match(r"https?://[^/\s@]+", text) or not text.isprintable():
        raise ValueError(text)
    return text.rstrip("/")


def _default_hub_cache() -> Path:
    """Follow huggingface_hub, so that what one of the two has fetched the other finds."""
    for variable, below in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
    ):
        if os.environ.get(variable):
            return _parse_directory(os.path.expandvars(os.environ[variable])) / below
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return _parse_directory(base) / "huggingface" / "hub"


def _default_hub_config() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return _parse_directory(base if os.path.isabs(base) else "~/.config") / "kernelmill/hub.toml"  # noqa: PTH117


def _default_cache_dir() -> Path:
    """Follow the XDG base directory specification, which says to ignore a relative path."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):  # noqa: PTH117 - a string test, before there is a path
        return Path(base) / "kernelmill"
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is no home
    if os.path.isabs(home):  # noqa: PTH117
        return Path(home) / ".cache" / "kernelmill"
    # Neither HOME nor a passwd entry. The name can be foreseen, but the cache trusts no directory
    # that belongs to somebody else.
    return Path(os.environ.get("TMPDIR") or "/tmp") / f"kernelmill-{os.getuid()}"  # noqa: S108


# ------------------------------------------------------------------------------ the table


@dataclass(frozen=True, slots=True)
class Knob:
    """One row of the table of settings.

    `parse` turns the text of `variable` into the value of `Config`'s field `name`, or raises
    ValueError; `accepts` and `default` are words for people.
    """

    name: str
    variable: str
    parse: Callable[[str], object]
    accepts: str
    default: str
    doc: str


def _knob(  # Any: what `dataclasses.field` has in the stubs, so that the annotation counts
    variable: str,
    parse: Callable[[str], object],
    value: object,
    *,
    accepts: str,
    default: str,
    doc: str,
) -> Any:
    row = {
        "variable": variable,
        "parse": parse,
        "accepts": accepts,
        "default": default,
        "doc": doc,
    }
    if callable(value):
        return field(default_factory=value, metadata=row)
    return field(default=value, metadata=row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """All settings, as parsed from the environment. Each field is described by its `Knob`.

    Examples
    --------
    >>> from kernelmill.config import Config
    >>> Config(cache_size=1 << 20).cache_size
    1048576
    """

    cache_dir: Path = _knob(  # noqa: RUF009 - it returns what `field()` does
        "KERNELMILL_CACHE_DIR",
        _parse_directory,
        _default_cache_dir,
        accepts="a directory; it is made when first needed",
        default="$XDG_CACHE_HOME/kernelmill, else ~/.cache/kernelmill",
        doc="Where compiled kernels are kept.",
    )
    cache_size: int = _knob(
        "KERNELMILL_CACHE_SIZE",
        _parse_size,
        4 << 30,
        accepts="a number of bytes, or one with K, M, G or T (powers of 1024), such as 512M",
        default="4G",
        doc="The most bytes the cache keeps; the least recently used entries go first.",
    )
    cxx: str | None = _knob(
        "KERNELMILL_CXX",
        _parse_command,
        None,
        accepts="the name or path of a C++ compiler: c++, g++, clang++, zig, /opt/gcc/bin/g++",
        default="the first of c++, g++, clang++ and the ziglang wheel",
        doc="The host C++ compiler.",
    )
    cxx_timeout: float = _knob(
        "KERNELMILL_CXX_TIMEOUT",
        _parse_seconds,
        120.0,
        accepts=f"seconds above 0, at most {_MAX_SECONDS:.0f}",
        default="120",
        doc="How long one run of a compiler may take.",
    )
    march: str = _knob(
        "KERNELMILL_MARCH",
        _parse_march,
        "native",
        accepts="a value of the compiler's -march=, such as native or x86-64-v3",
        default="native",
        doc="The instruction set that CPU kernels are compiled for.",
    )
    num_threads: int | None = _knob(
        "KERNELMILL_NUM_THREADS",
        _parse_threads,
        None,
        accepts=f"a whole number from 1 to {_MAX_THREADS}",
        default="the number of CPUs in the affinity mask",
        doc="How many threads CPU kernels run on.",
    )
    native: bool = _knob(
        "KERNELMILL_NATIVE",
        _parse_switch,
        True,  # noqa: FBT003 - the default, in the column of defaults
        accepts="1 or 0 (also true/false, yes/no, on/off)",
        default="1",
        doc="0 runs the pure-Python twin in place of the compiled extension.",
    )
    device: str = _knob(
        "KERNELMILL_DEVICE",
        _parse_device,
        "auto",
        accepts="auto, cpu, emulator, null, cuda or cuda:N",
        default="auto",
        doc="The default device; auto is the CPU. Arrays on a GPU decide for themselves.",
    )
    hub_cache: Path = _knob(  # noqa: RUF009
        "KERNELS_CACHE",
        _parse_directory,
        _default_hub_cache,
        accepts="a directory; it is made when first needed",
        default="$HF_HUB_CACHE, else $HF_HOME/hub, else ~/.cache/huggingface/hub",
        doc="Where kernels from registries are kept, in the layout of the Hub's cache.",
    )
    hub_config: Path = _knob(  # noqa: RUF009
        "KERNELMILL_HUB_CONFIG",
        _parse_directory,
        _default_hub_config,
        accepts="a TOML file; it need not be there",
        default="$XDG_CONFIG_HOME/kernelmill/hub.toml, else ~/.config/kernelmill/hub.toml",
        doc="The user's registries and whom they trust.",
    )
    hub_endpoint: str = _knob(
        "HF_ENDPOINT",
        _parse_endpoint,
        "https://huggingface.co",
        accepts="an http or https address without credentials",
        default="https://huggingface.co",
        doc="The registry that is asked where none is configured; it speaks the Hub's protocol.",
    )
    hub_offline: bool = _knob(
        "HF_HUB_OFFLINE",
        _parse_switch,
        False,  # noqa: FBT003
        accepts="1 or 0 (also true/false, yes/no, on/off)",
        default="0",
        doc="1 asks no registry: kernels come from the cache or not at all.",
    )
    local_kernels: str = _knob(
        "LOCAL_KERNELS",
        _parse_text,
        "",
        accepts="organization/name=directory, several separated by a colon",
        default="unset",
        doc="Kernels that are loaded from directories in the place of registries.",
    )
    disable_kernel_mapping: bool = _knob(
        "DISABLE_KERNEL_MAPPING",
        _parse_switch,
        False,  # noqa: FBT003
        accepts="1 or 0 (also true/false, yes/no, on/off)",
        default="0",
        doc="1 makes `kernelize` leave all layers with their own forward methods.",
    )
    color: bool = _knob(
        "NO_COLOR",
        _parse_no_color,
        True,  # noqa: FBT003
        accepts="anything",
        default="unset",
        doc="Any value that is not empty switches colour off on a terminal.",
    )
    log_level: str = _knob(
        "KERNELMILL_LOG",
        _parse_level,
        "warning",
        accepts=", ".join(LOG_LEVELS),
        default="warning",
        doc="How much the `kernelmill` logger says.",
    )

    def threads(self) -> int:
        """Return the number of threads to run on: `num_threads`, else the affinity mask's."""
        return self.num_threads or len(os.sched_getaffinity(0))


def knobs() -> tuple[Knob, ...]:
    """Return the table of settings, in the order of the reference page.

    Examples
    --------
    >>> from kernelmill.config import knobs
    >>> knobs()[1].variable
    'KERNELMILL_CACHE_SIZE'
    """
    return _KNOBS


_KNOBS: Final = tuple(Knob(name=f.name, **f.metadata) for f in fields(Config))


# ------------------------------------------------------------------------ the current one

_current: Config | None = None


def get_config() -> Config:
    """Return the current settings; the environment is read at the first call.

    Raises
    ------
    ConfigError
        A variable holds a value that cannot be used; the text names the variable, the value and
        what is accepted.

    Examples
    --------
    >>> from kernelmill.config import get_config
    >>> get_config() is get_config()
    True
    """
    return reload() if _current is None else _current


def reload() -> Config:
    """Read the environment again, make the result current and return it.

    Raises
    ------
    ConfigError
        As `get_config`; the settings that were current before stay.
    """
    global _current  # noqa: PLW0603 - the one piece of state here; the value itself is frozen
    _current = _read(os.environ)
    return _current


@contextmanager
def override(**changes: object) -> Iterator[Config]:
    """Replace some settings inside a `with` block, for the whole process; meant for tests.

    Parameters
    ----------
    **changes
        Fields of `Config` and their values. A `str` is parsed as the text of the field's
        environment variable would be.

    Raises
    ------
    ConfigError
        A name is not a field, or a value is not of the field's type.

    Examples
    --------
    >>> from kernelmill.config import get_config, override
    >>> with override(cache_size="1M"):
    ...     get_config().cache_size
    1048576
    """
    global _current  # noqa: PLW0603
    before = get_config()
    # Any: the check that mypy would make of each value is made at run time, just above.
    checked: dict[str, Any] = {name: _checked(name, value) for name, value in changes.items()}
    _current = replace(before, **checked)
    try:
        yield _current
    finally:
        _current = before


def _read(environ: Mapping[str, str]) -> Config:
    # Any: each parser returns its own field's type.
    values: dict[str, Any] = {
        knob.name: _parsed(knob, environ[knob.variable])
        for knob in _KNOBS
        if environ.get(knob.variable)  # an empty variable counts as unset
    }
    return Config(**values)


def _parsed(knob: Knob, text: str) -> object:
    try:
        return knob.parse(text)
    except ValueError:
        raise ConfigError(
            f"{knob.variable}={text!r} cannot be used; accepted: {knob.accepts}",
            hint=f"unset {knob.variable} for the default ({knob.default})",
        ) from None


def _checked(name: str, value: object) -> object:
    knob = next((knob for knob in _KNOBS if knob.name == name), None)
    if knob is None:
        names = ", ".join(knob.name for knob in _KNOBS)
        raise ConfigError(f"there is no setting {name!r}; settings: {names}")
    if isinstance(value, str):
        return _parsed(knob, value)
    expected = get_type_hints(Config)[name]
    if expected is float and isinstance(value, int):
        return float(value)
    if not isinstance(value, expected):
        raise ConfigError(
            f"setting {name}={value!r} is of type {type(value).__name__}; "
            f"expected: {getattr(expected, '__name__', expected)}"
        )
    return value


# ----------------------------------------------------------------------- the environment


@dataclass(frozen=True, slots=True)
class UnknownVariable:
    """A `KERNELMILL_*` variable that nothing reads; `nearest` is the known name most like it."""

    variable: str
    nearest: str


def unknown_variables() -> tuple[UnknownVariable, ...]:
    """Return the `KERNELMILL_*` variables that are set and unknown, sorted.

    `kernelmill doctor` shows them. Nothing warns of them at import: a variable of a newer version
    is no fault.
    """
    import difflib  # noqa: PLC0415 - for people who look for a fault; not a cost of every import

    known = [knob.variable for knob in _KNOBS if knob.variable.startswith(PREFIX)]
    strangers = sorted(v for v in os.environ if v.startswith(PREFIX) and v not in known)
    return tuple(
        UnknownVariable(name, difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0])
        for name in strangers
    )


def child_environment(**changes: str) -> dict[str, str]:
    """Return a copy of the environment for a child process, with some variables set.

    Examples
    --------
    >>> from kernelmill.config import child_environment
    >>> child_environment(LC_ALL="C")["LC_ALL"]
    'C'
    """
    return {**os.environ, **changes}
