"""How one value of a manifest is read: texts, lists, versions, addresses. Knows no sections.

A reader takes a value that TOML delivered and the path of its key; it returns what a manifest
holds, or raises `ManifestError` with that path. They accept what Hugging Face's parser accepts.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from kernelmill.errors import ManifestError
from kernelmill.package.release import Release

__all__ = [
    "Key",
    "Reader",
    "each",
    "member",
    "read_git_address",
    "read_name",
    "read_release",
    "read_table",
    "read_text",
    "read_whole",
    "table_of",
    "texts",
]

Reader = Callable[[Any, str], Any]  # Any: what TOML can hold in, a field of a manifest out

_NAME: Final = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]", re.ASCII)
_MOST: Final = (1 << 63) - 1
_KINDS: Final = {
    str: "a text",
    bool: "a boolean",
    int: "a whole number",
    float: "a number with a fraction",
    list: "a list",
    dict: "a table",
}


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table: its name as written, how its value is read, whether it must be there."""

    name: str
    read: Reader
    required: bool = False

    @property
    def field(self) -> str:
        """The name of the field that holds it."""
        return self.name.replace("-", "_")


def kind_of(value: object) -> str:
    """Say what TOML delivered, in words."""
    return _KINDS.get(type(value), "a date or time")


def wrong(path: str, wanted: str, value: object) -> ManifestError:
    """Return the error of a value of another kind."""
    shown = repr(value)
    found = f"{kind_of(value)}, {shown}" if len(shown) <= 60 else kind_of(value)  # noqa: PLR2004
    return ManifestError(f"build.toml: `{path}` must be {wanted}; found {found}", path=path)


# ----------------------------------------------------------------------------- single values


def read_text(value: object, path: str) -> str:
    """Read a text."""
    if not isinstance(value, str):
        raise wrong(path, "a text", value)
    return value


def read_whole(value: object, path: str) -> int:
    """Read a whole number, at least 0."""
    if type(value) is not int or not 0 <= value <= _MOST:
        raise wrong(path, f"a whole number from 0 to {_MOST}", value)
    return value


def read_name(value: object, path: str) -> str:
    """Read the name of a kernel."""
    text = read_text(value, path)
    if not _NAME.fullmatch(text):
        raise ManifestError(
            f"build.toml: `{path}` is {text!r}, which cannot be the name of a kernel",
            path=path,
            hint="at least two characters: lower-case letters, digits and dashes, a letter first, "
            "no dash last",
        )
    return text


def read_release(value: object, path: str) -> Release:
    """Read a version of two numbers."""
    text = read_text(value, path)
    try:
        if text.count(".") == 1:
            return Release.parse(text)
    except ValueError:
        pass
    raise wrong(path, 'a version of two numbers, such as "2.10"', value)


def member(*known: str) -> Reader:
    """Return a reader of one of these texts."""

    def read(value: object, path: str) -> str:
        text = read_text(value, path)
        if text not in known:
            raise ManifestError(
                f"build.toml: `{path}` is {text!r}; known are {', '.join(known)}",
                path=path,
                hint=f"did you mean {nearest(text, known)!r}?",
            )
        return text

    return read


# ----------------------------------------------------------------------------- lists and tables


def each(read: Reader) -> Reader:
    """Return a reader of a list, each of whose values `read` reads."""

    def read_all(value: object, path: str) -> tuple[object, ...]:
        if not isinstance(value, list):
            raise wrong(path, "a list", value)
        return tuple(read(item, f"{path}[{index}]") for index, item in enumerate(value))

    return read_all


texts: Final = each(read_text)


def table_of(keys: Sequence[Key], make: Callable[..., object]) -> Reader:
    """Return a reader of a table with these keys, from whose values `make` makes the result."""

    def read(value: object, path: str) -> object:
        return make(**read_table(value, path, keys))

    return read


def read_table(value: object, path: str, keys: Sequence[Key]) -> dict[str, object]:
    """Read a table: no key that is not in `keys`, every one that is required."""
    if not isinstance(value, Mapping):
        raise wrong(path, "a table", value)
    known = {key.name: key for key in keys}
    for name in value:
        if name not in known:
            raise unknown_key(path, name, tuple(known))
    for key in keys:
        if key.required and key.name not in value:
            raise ManifestError(
                f"build.toml: `{_under(path, key.name)}` is missing", path=_under(path, key.name)
            )
    return {
        key.field: key.read(value[key.name], _under(path, key.name))
        for key in keys
        if key.name in value
    }


def unknown_key(path: str, name: str, known: Sequence[str]) -> ManifestError:
    """Return the error of a key that nobody reads, with the known key that is nearest to it."""
    full = _under(path, name)
    return ManifestError(
        f"build.toml: unknown key `{full}`; known in {f'[{path}]' if path else 'the file'}: "
        f"{', '.join(known)}",
        path=full,
        hint=f"the nearest known key is `{_under(path, nearest(name, known))}`",
    )


def nearest(name: str, known: Sequence[str]) -> str:
    """Return which of the known names is most like this one."""
    plain = name.lower().replace("_", "-")

    def likeness(candidate: str) -> float:
        return difflib.SequenceMatcher(None, plain, candidate.replace("_", "-")).ratio()

    return max(known, key=likeness)


def _under(path: str, name: str) -> str:
    shown = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else repr(name)
    return f"{path}.{shown}" if path else shown


# ----------------------------------------------------------------------------- addresses of git

_SCHEMES: Final = ("https", "http", "git", "ssh", "git+ssh", "git+https", "git+http")
_SPECIAL: Final = ("https", "http")
_ADDRESS: Final = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", re.DOTALL)
# What must not stand in the name of a machine; a domain name refuses "%" and controls as well.
_FORBIDDEN: Final = frozenset("\0\t\n\r #/:<>?@[\\]^|")
_CONTROLS: Final = frozenset(map(chr, [*range(0x20), 0x7F]))
_C0_AND_SPACE: Final = "".join(map(chr, range(0x21)))
_MOST_PORT: Final = 65535


def read_git_address(value: object, path: str) -> str:
    """Read the address of a repository: a URL, or `user@machine:folder`."""
    text = read_text(value, path)
    scheme = _scheme(text)
    if scheme and scheme not in _SCHEMES and _is_url(text):
        raise ManifestError(
            f"build.toml: `{path}` is {text!r}, whose scheme is {scheme}; "
            f"git's are {', '.join(_SCHEMES)}",
            path=path,
            hint="an address without a scheme is written git@machine:folder",
        )
    machine, _, folder = text.partition(":")
    short = bool(machine and folder) and not folder.startswith("/")
    if not (_is_url(text) or (short and _is_url(f"ssh://{machine}/{folder}"))):
        raise wrong(path, "the address of a git repository", value)
    return text


def _scheme(text: str) -> str:
    match = _ADDRESS.fullmatch(_without_spaces(text))
    return match[1].lower() if match else ""


def _without_spaces(text: str) -> str:
    inner = text.strip(_C0_AND_SPACE)
    return inner.translate(dict.fromkeys(map(ord, "\t\n\r")))


def _is_url(text: str) -> bool:
    """Tell whether browsers would read this as a URL (https://url.spec.whatwg.org)."""
    match = _ADDRESS.fullmatch(_without_spaces(text))
    if match is None:
        return False
    scheme, rest = match[1].lower(), match[2]
    if scheme in _SPECIAL:
        rest = rest.replace("\\", "/").lstrip("/")
    elif rest.startswith("//"):
        rest = rest[2:]
    else:
        return True
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    _, at, machine = authority.rpartition("@")
    host, port = _split_port(machine)
    if not _is_port(port):
        return False
    if not host:
        return scheme not in _SPECIAL and not at and not port
    return _is_host(host, special=scheme in _SPECIAL)


def _split_port(machine: str) -> tuple[str, str]:
    match = re.fullmatch(r"(\[.*\]|[^:]*)(?::(.*))?", machine, re.DOTALL)
    return (match[1], match[2] or "") if match else (machine, "")


def _is_port(port: str) -> bool:
    digits = port.isascii() and port.isdecimal() and len(port.lstrip("0")) <= len("65535")
    return not port or (digits and int(port) <= _MOST_PORT)


def _is_host(host: str, *, special: bool) -> bool:
    if host.startswith("["):
        return host.endswith("]") and _is_ip6(host[1:-1])
    if not special:
        return not _FORBIDDEN & set(host)
    name = _domain(unquote(host))
    if not name or (_FORBIDDEN | _CONTROLS | {"%"}) & set(name):
        return False
    return _is_ip4(name) if _ends_in_number(name) else True


def _domain(name: str) -> str:
    """Return the name in ASCII, "" where it has none."""
    try:
        labels = name.lower().split(".")
        return ".".join(_label(label) for label in labels)
    except UnicodeError:
        return ""


def _label(label: str) -> str:
    if label.startswith("xn--"):
        decoded = label[4:].encode("ascii").decode("punycode")
        if not decoded or decoded.isascii() or any(map(_is_control, decoded)):
            raise UnicodeError(label)
    return label if label.isascii() else f"xn--{label.encode('punycode').decode('ascii')}"


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cn", "Co", "Cs")


def _is_ip6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return "%" not in text


def _ends_in_number(name: str) -> bool:
    labels = name.removesuffix(".").split(".")
    return bool(labels[-1]) and (labels[-1].isdecimal() or _number(labels[-1]) is not None)


def _is_ip4(name: str) -> bool:
    numbers = [_number(label) for label in name.removesuffix(".").split(".")]
    if len(numbers) > 4 or None in numbers:  # noqa: PLR2004 - an address has four bytes
        return False
    *firsts, last = (number or 0 for number in numbers)
    return all(number <= 0xFF for number in firsts) and last < 1 << 8 * (4 - len(firsts))  # noqa: PLR2004


def _number(label: str) -> int | None:
    """Read a part of an address of four bytes: decimal, octal or hexadecimal."""
    try:
        if label.startswith("0x"):
            return int(label[2:] or "0", 16) if re.fullmatch(r"[0-9a-f]*", label[2:]) else None
        base = 8 if len(label) > 1 and label.startswith("0") else 10
        return int(label, base) if label.isascii() and label.isdecimal() else None
    except ValueError:
        return None
