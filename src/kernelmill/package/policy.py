"""Which registries there are, whom they serve, and what a kernel must prove before it is loaded.

The tables stand in `[[tool.kernelmill.registry]]` and `[[tool.kernelmill.trust]]` of a project's
pyproject.toml, and as `[[registry]]` and `[[trust]]` in the user's `hub.toml`. Signatures are
checked elsewhere, and registries opened elsewhere.
"""

from __future__ import annotations

import fnmatch
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kernelmill.config import get_config
from kernelmill.errors import PackageError, TrustError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = [
    "LEVELS",
    "Identity",
    "Policy",
    "RegistrySettings",
    "Rule",
    "check_rule",
    "parse_tables",
    "read_policy",
]

LEVELS: Final = {
    1: "the bytes are those of the commit",
    2: "and the digest in metadata.json holds",
    3: "and metadata.json is signed by somebody on the list",
}
VOUCHES: Final = ("publisher", "all", "listed")
DEFAULT: Final = "hub"
_KEY: Final = re.compile(r"ed25519:[A-Za-z0-9+/]{43}=", re.ASCII)
_PATTERN: Final = re.compile(r"[\w.*?-]+(/[\w.*?-]+)?", re.ASCII)
_MOST_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Identity:
    """Who may sign through sigstore: the certificate's subject, and who issued the token for it."""

    subject: str
    issuer: str


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """One registry of the configuration.

    Parameters
    ----------
    name, url
        What it is called, and its address (see `registry_open.open_registry`).
    mirrors
        Addresses that are asked for contents when it fails, in this order. They decide nothing:
        commits and listings come from `url`, contents are verified.
    organizations
        Patterns of the publishers that are looked for here.
    trust
        "publisher": whom the registry vouches for; "all"; or "listed": only who has a rule.
    token_variable
        The environment variable with the token; "" for what `huggingface_hub` finds.
    options
        Keyword arguments for fsspec's file system.
    """

    name: str
    url: str
    mirrors: tuple[str, ...] = ()
    organizations: tuple[str, ...] = ("*",)
    trust: str = "publisher"
    token_variable: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)  # Any: fsspec's own

    def serves(self, repo_id: str) -> bool:
        """Return whether a repository is looked for here."""
        publisher = repo_id.partition("/")[0]
        return any(fnmatch.fnmatchcase(publisher, one) for one in self.organizations)


@dataclass(frozen=True, slots=True)
class Rule:
    """What kernels of a publisher must prove.

    Parameters
    ----------
    publisher
        `organization`, `organization/name`, or a pattern of either.
    level
        1, 2 or 3, see `LEVELS`; 0 refuses.
    registry
        The registry's name, or "*".
    keys
        `ed25519:` and the base64 of a public key.
    identities
        Who may sign through sigstore.
    trusted_root
        A file with the roots of a sigstore instance; "" for the public one.
    """

    publisher: str
    level: int
    registry: str = "*"
    keys: tuple[str, ...] = ()
    identities: tuple[Identity, ...] = ()
    trusted_root: str = ""

    def covers(self, registry: str, repo_id: str) -> bool:
        """Return whether the rule is about a repository of a registry."""
        pattern = self.publisher if "/" in self.publisher else f"{self.publisher}/*"
        return self.registry in {"*", registry} and fnmatch.fnmatchcase(repo_id, pattern)

    def precision(self) -> tuple[bool, bool, bool, int]:
        """Return what orders rules: the more exact one counts, then the stricter one."""
        exact = not re.search(r"[*?]", self.publisher)
        refusal = 9 if self.level == 0 else self.level
        return ("/" in self.publisher, exact, self.registry != "*", refusal)


@dataclass(frozen=True, slots=True)
class Policy:
    """Registries and rules, those of the project before the user's.

    Examples
    --------
    >>> from kernelmill.package.policy import Policy, Rule
    >>> policy = Policy(rules=(Rule("acme", 2), Rule("acme/relu", 3)))
    >>> policy.rule("hub", "acme/relu", vouched=lambda: None).level
    3
    """

    registries: tuple[RegistrySettings, ...] = ()
    rules: tuple[Rule, ...] = ()

    def registry(self, repo_id: str, name: str = "") -> RegistrySettings:
        """Return the registry of a name, or where a repository is looked for.

        Raises
        ------
        PackageError
            There is no registry of that name.
        """
        for one in self.registries:
            if one.name == name or (not name and one.serves(repo_id)):
                return one
        if name in {"", DEFAULT}:
            return RegistrySettings(DEFAULT, get_config().hub_endpoint)
        names = ", ".join([*(one.name for one in self.registries), DEFAULT])
        raise PackageError(f"there is no registry {name!r}; configured: {names}")

    def rule(
        self,
        registry: str,
        repo_id: str,
        *,
        vouched: Callable[[], bool | None],
        trust: str = "publisher",
    ) -> Rule:
        """Return what a repository's kernels must prove.

        Parameters
        ----------
        registry, repo_id
            The registry's name, and the repository.
        vouched
            Asks whether the registry vouches for the publisher; only called where no rule does.
        trust
            The registry's own setting.

        Raises
        ------
        TrustError
            Nothing allows them; the hint is the command that would.
        """
        fitting = [rule for rule in self.rules if rule.covers(registry, repo_id)]
        if fitting:
            best = max(fitting, key=Rule.precision)
            if best.level:
                return best
            raise TrustError(
                f"{repo_id}: the rule for {best.publisher!r} refuses its kernels",
                hint=f"`kernelmill trust {repo_id} --level 1` would allow this one",
            )
        publisher = repo_id.partition("/")[0]
        if trust == "all" or (trust == "publisher" and vouched()):
            return Rule(publisher, 1, registry)
        reason = (
            "only listed publishers are trusted there"
            if trust == "listed"
            else "that registry does not vouch for its publisher"
        )
        raise TrustError(
            f"{repo_id} from the registry {registry!r} is not trusted: no rule names "
            f"{publisher!r}, and {reason}; nothing of it was downloaded or imported",
            hint=f"`kernelmill trust {publisher} --registry {registry}` allows its kernels",
        )


# ----------------------------------------------------------------------------- reading


def read_policy(project: Path | None = None) -> Policy:
    """Return the policy of a project and the user.

    Parameters
    ----------
    project
        A directory with pyproject.toml; None for the user's settings alone.

    Raises
    ------
    PackageError
        A file is no TOML, or a table has an unknown key or a value that cannot be used; the text
        names file and key.
    """
    tables: list[tuple[str, Mapping[str, Any]]] = []  # Any: TOML
    if project is not None and (project / "pyproject.toml").is_file():
        place = project / "pyproject.toml"
        body = _toml(place).get("tool", {}).get("kernelmill", {})
        tables.append((f"{place}: tool.kernelmill", body if isinstance(body, dict) else {}))
    user = get_config().hub_config
    if user.is_file():
        body = _toml(user)
        _known(body, {"registry", "trust"}, str(user))
        tables.append((str(user), body))
    return Policy(
        tuple(_registry(row, spot) for row, spot in _rows(tables, "registry")),
        tuple(_rule(row, spot) for row, spot in _rows(tables, "trust")),
    )


def parse_tables(text: str, key: str, *, in_project: bool, place: str) -> list[dict[str, Any]]:
    """Return the tables `key` in the text of a policy file.

    Raises
    ------
    PackageError
        The text is no TOML, or they are no tables; `place` is named.
    """
    body = _parsed(text.encode(), place)
    if in_project:
        body = body.get("tool", {}).get("kernelmill", {})
    return [row for row, _ in _rows([(place, body)], key)]


def check_rule(row: dict[str, Any], place: str) -> Rule:
    """Return the rule that a table means.

    Raises
    ------
    PackageError
        It has an unknown key or a value that cannot be used; `place` is named.
    """
    return _rule(row, place)


def _toml(place: Path) -> dict[str, Any]:
    return _parsed(place.read_bytes(), str(place))


def _parsed(body: bytes, place: str) -> dict[str, Any]:
    if len(body) > _MOST_BYTES:
        raise PackageError(f"{place} has more than {_MOST_BYTES >> 20} MiB")
    try:
        return tomllib.loads(body.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PackageError(f"{place} is no TOML: {error}") from None


def _rows(
    tables: Sequence[tuple[str, Mapping[str, Any]]], key: str
) -> Iterable[tuple[dict[str, Any], str]]:
    for place, body in tables:
        rows = body.get(key, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise PackageError(f"{place}.{key} is no list of tables; written [[{key}]]")
        for number, row in enumerate(rows):
            yield row, f"{place}.{key}[{number}]"


def _known(row: Mapping[str, Any], keys: Iterable[str], place: str) -> None:
    strange = sorted(set(row) - set(keys))
    if strange:
        raise PackageError(
            f"{place} has the unknown key {strange[0]!r}; known: {', '.join(sorted(keys))}"
        )


def _registry(row: dict[str, Any], place: str) -> RegistrySettings:
    keys = {"name", "url", "mirrors", "organizations", "trust", "token-variable", "options"}
    _known(row, keys, place)
    trust = _text(row, "trust", place, "publisher")
    if trust not in VOUCHES:
        raise PackageError(f"{place}.trust is {trust!r}; accepted: {', '.join(VOUCHES)}")
    options = row.get("options", {})
    if not isinstance(options, dict):
        raise PackageError(f"{place}.options is {options!r}; accepted: a table")
    return RegistrySettings(
        name=_text(row, "name", place),
        url=_text(row, "url", place),
        mirrors=_texts(row, "mirrors", place),
        organizations=_texts(row, "organizations", place) or ("*",),
        trust=trust,
        token_variable=_text(row, "token-variable", place, ""),
        options=options,
    )


def _rule(row: dict[str, Any], place: str) -> Rule:
    keys = {"publisher", "level", "registry", "keys", "sigstore", "trusted-root"}
    _known(row, keys, place)
    publisher = _text(row, "publisher", place)
    if not _PATTERN.fullmatch(publisher):
        raise PackageError(
            f"{place}.publisher is {publisher[:80]!r}; accepted: organization[/name], * and ?"
        )
    level = row.get("level", 1)
    if type(level) is not int or level not in {0, *LEVELS}:
        raise PackageError(f"{place}.level is {level!r}; accepted: 0 (refuse), 1, 2, 3")
    signers = _texts(row, "keys", place)
    for key in signers:
        if not _KEY.fullmatch(key):
            raise PackageError(f"{place}.keys has {key[:80]!r}; accepted: ed25519: and base64")
    identities = tuple(_identities(row, place))
    if level == 3 and not (signers or identities):  # noqa: PLR2004 - the level with signatures
        raise PackageError(
            f"{place} asks for level 3 and names neither keys nor sigstore identities"
        )
    return Rule(
        publisher,
        level,
        _text(row, "registry", place) if "registry" in row else "*",
        signers,
        identities,
        _text(row, "trusted-root", place, ""),
    )


def _identities(row: dict[str, Any], place: str) -> Iterable[Identity]:
    rows = row.get("sigstore", [])
    if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
        raise PackageError(f"{place}.sigstore is no list of tables with identity and issuer")
    for number, one in enumerate(rows):
        spot = f"{place}.sigstore[{number}]"
        _known(one, {"identity", "issuer"}, spot)
        yield Identity(_text(one, "identity", spot), _text(one, "issuer", spot))


def _text(row: Mapping[str, Any], key: str, place: str, default: str | None = None) -> str:
    value = row.get(key, default)
    if not isinstance(value, str) or (not value and default is None):
        raise PackageError(f"{place}.{key} is {value!r}; accepted: a text")
    return value


def _texts(row: Mapping[str, Any], key: str, place: str) -> tuple[str, ...]:
    value = row.get(key, [])
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise PackageError(f"{place}.{key} is {value!r}; accepted: a list of texts")
    return tuple(value)
