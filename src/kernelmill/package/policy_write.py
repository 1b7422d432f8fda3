"""Adding a rule to a policy file: a refusal is lifted by one command. Reading is `policy`'s."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kernelmill.config import get_config
from kernelmill.errors import PackageError
from kernelmill.package.policy import check_rule, read_tables
from kernelmill.package.whole_file import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernelmill.package.policy import Rule

__all__ = ["add_rule"]


def add_rule(rule: Rule, project: Path | None = None) -> Path:
    """Add a rule to the user's `hub.toml`, or to a project's `pyproject.toml`.

    The file's other lines stay as they are.

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
        The rule cannot be used, the file has one for the same publisher and registry already, or
        cannot be read.
    """
    place = get_config().hub_config if project is None else project / "pyproject.toml"
    before = place.read_text(encoding="utf-8") if place.is_file() else ""
    if project is not None and not before:
        raise PackageError(f"there is no {place}")
    check_rule(_table(rule), "the rule")
    for row in read_tables(place, "trust", in_project=project is not None):
        if (row.get("publisher"), row.get("registry", "*")) == (rule.publisher, rule.registry):
            raise PackageError(
                f"{place} has a rule for {rule.publisher!r} already: {json.dumps(row)}",
                hint="change it there",
            )
    head = "[[tool.kernelmill.trust]]" if project is not None else "[[trust]]"
    text = "\n".join([head, *_lines(rule)]) + "\n"
    place.parent.mkdir(parents=True, exist_ok=True)
    replace_file(place, f"{before.rstrip()}\n\n{text}" if before.strip() else text)
    return place


def _table(rule: Rule) -> dict[str, Any]:  # Any: what TOML holds
    return {
        "publisher": rule.publisher,
        "level": rule.level,
        "registry": rule.registry,
        "keys": list(rule.keys),
        "sigstore": [{"identity": i.subject, "issuer": i.issuer} for i in rule.identities],
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


def _quoted(text: str) -> str:
    """Return a basic string of TOML, of which JSON's strings are a part."""
    return json.dumps(text)
