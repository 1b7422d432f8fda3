"""Adding a rule to a policy file: a refusal is lifted by one command. Reading is `policy`'s."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kernelmill.config import get_config
from kernelmill.errors import PackageError
from kernelmill.package.policy import check_rule, parse_tables
from kernelmill.package.whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernelmill.package.policy import Rule

__all__ = ["add_rule"]


def add_rule(rule: Rule, project: Path | None = None) -> Path:
    """Add a rule to the user's `hub.toml`, or to a project's `pyproject.toml`.

    A rule for the same publisher and registry is replaced; all other lines stay as they are.

    Parameters
    ----------
    rule
        What to add.
    project
        A directory with `pyproject.toml`; None for the user's file, which is made if need be.

    Returns
    -------
    path
        The file.

    Raises
    ------
    PackageError
        The rule cannot be used, or the file cannot be read.
    """
    in_project = project is not None
    place = get_config().hub_config if project is None else project / "pyproject.toml"
    before = place.read_text(encoding="utf-8") if place.is_file() else ""
    if in_project and not before:
        raise PackageError(f"there is no {place}")
    check_rule(_table(rule), "the rule")
    head = "[[tool.kernelmill.trust]]" if in_project else "[[trust]]"
    rows = parse_tables(before, "trust", in_project=in_project, place=str(place))
    kept = _without(rule, before, head, rows, place)
    text = "\n".join([head, *_lines(rule)]) + "\n"
    made = f"{kept.rstrip()}\n\n{text}" if kept.strip() else text
    others = [row for row in rows if _about(row) != (rule.publisher, rule.registry)]
    if parse_tables(made, "trust", in_project=in_project, place=str(place))[:-1] != others:
        raise PackageError(
            f"{place} is written in a way that the rule cannot be added to it safely",
            hint=f"add it by hand:\n{text}",
        )
    place.parent.mkdir(parents=True, exist_ok=True)
    replace_file(place, made)
    return place


def _about(row: dict[str, Any]) -> tuple[object, object]:  # Any: TOML
    return row.get("publisher"), row.get("registry", "*")


def _without(
    rule: Rule,
    text: str,
    head: str,
    rows: list[dict[str, Any]],  # Any: TOML
    place: Path,
) -> str:
    """Return the file without the tables about the same publisher and registry."""
    same = [_about(row) for row in rows]
    lines = text.splitlines(keepends=True)
    heads = [n for n, line in enumerate(lines) if line.partition("#")[0].strip() == head]
    if len(heads) != len(rows) and (rule.publisher, rule.registry) in same:
        raise PackageError(
            f"{place} has a rule for {rule.publisher!r} that is not written as {head}",
            hint="change it there",
        )
    for begin, key in reversed(list(zip(heads, same, strict=False))):
        if key == (rule.publisher, rule.registry):
            rest = range(begin + 1, len(lines))
            end = next((n for n in rest if _starts_table(lines[n], head)), len(lines))
            del lines[begin:end]
    return "".join(lines)


def _starts_table(line: str, head: str) -> bool:
    """Return whether a line begins another table than one within the rule, such as its signers."""
    text = line.lstrip()
    return text.startswith("[") and not text.lstrip("[ ").startswith(f"{head.strip('[]')}.")


def _table(rule: Rule) -> dict[str, Any]:  # Any: what TOML holds
    return {
        "publisher": rule.publisher,
        "level": rule.level,
        "registry": rule.registry,
        "keys": list(rule.keys),
        "sigstore": [{"identity": i.subject, "issuer": i.issuer} for i in rule.identities],
        "trusted-root": rule.trusted_root,
    }


def _lines(rule: Rule) -> Iterator[str]:
    yield f"publisher = {_quoted(rule.publisher)}"
    yield f"level = {rule.level}"
    if rule.registry != "*":
        yield f"registry = {_quoted(rule.registry)}"
    if rule.keys:
        yield f"keys = [{', '.join(map(_quoted, rule.keys))}]"
    if rule.identities:
        rows = (
            f"{{ identity = {_quoted(i.subject)}, issuer = {_quoted(i.issuer)} }}"
            for i in rule.identities
        )
        yield f"sigstore = [{', '.join(rows)}]"
    if rule.trusted_root:
        yield f"trusted-root = {_quoted(rule.trusted_root)}"


def _quoted(text: str) -> str:
    """Return a basic string of TOML, of which JSON's strings are a part."""
    return json.dumps(text)
