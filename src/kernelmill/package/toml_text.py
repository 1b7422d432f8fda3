"""Tables written as TOML, in the order they have. No comments, no dates; reading is `tomllib`'s."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from kernelmill.errors import ManifestError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["write_toml"]

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
_WIDTH = 88


def write_toml(table: Mapping[str, object]) -> str:
    """Return the text of a table: values before sections, long lists one item a line.

    Examples
    --------
    >>> from kernelmill.package.toml_text import write_toml
    >>> print(write_toml({"general": {"name": "relu", "backends": ["cpu"]}}), end="")
    [general]
    name = "relu"
    backends = ["cpu"]
    """
    return "\n".join(_sections(table, "")) + "\n"


def _sections(table: Mapping[str, object], above: str) -> list[str]:
    lines = [f"{_key(k)} = {_value(v)}" for k, v in table.items() if not isinstance(v, dict)]
    for name, inner in table.items():
        if not isinstance(inner, dict):
            continue
        full = f"{above}.{_key(name)}" if above else _key(name)
        below = _sections(inner, full)
        # A section that holds sections alone needs no header of its own.
        needed = not inner or not all(isinstance(v, dict) for v in inner.values())
        if lines and needed:
            lines.append("")
        lines += [f"[{full}]", *below] if needed else ["", *below] if lines else below
    return lines


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")


def _value(value: object) -> str:
    if isinstance(value, list):
        items = [_inline(item) for item in value]
        line = f"[{', '.join(items)}]"
        return line if len(line) <= _WIDTH else "[\n" + "".join(f"    {i},\n" for i in items) + "]"
    return _inline(value)


def _inline(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(k)} = {_inline(v)}" for k, v in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    raise ManifestError(f"build.toml: no key of a manifest holds a date or time: {value}")
