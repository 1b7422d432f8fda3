"""Which version of a kernel is asked for: an integer, a range, a revision. Nothing is looked up.

Semantic versions are read and ordered as PEP 440 does it, ranges likewise. Hugging Face's integer N
means the branch `vN`, and is the major number of every semantic version on that branch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kernelmill.errors import MissingExtraError, PackageError

try:
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version
except ImportError as missing:
    raise MissingExtraError(
        "versions and ranges of kernels need the distribution packaging, which is not installed",
        hint="pip install 'kernelmill[hub]'",
    ) from missing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "PythonNeed",
    "Version",
    "Wanted",
    "branch_of",
    "canonical_name",
    "check_repo_id",
    "integer_of_branch",
    "joined",
    "parse_version",
    "satisfiable",
    "version_of_tag",
]

MOST_INTEGER: Final = (1 << 64) - 1  # what the `usize` of Hugging Face's reader holds
_BRANCH: Final = re.compile(r"v(0|[1-9][0-9]*)", re.ASCII)
_TAG: Final = re.compile(r"v?([0-9]+\.[0-9]+.*)", re.ASCII)
_OPERATOR: Final = re.compile(r"\s*(===|~=|==|!=|<=|>=|<|>)")
_REPO: Final = re.compile(r"[A-Za-z0-9](?:[\w.-]*\w)?/[A-Za-z0-9](?:[\w.-]*\w)?", re.ASCII)
_LONGEST_REPO: Final = 96  # the Hub's limit
_PARTS: Final = 3
_MOST_SHOWN: Final = 80


def check_repo_id(text: object, *, place: str = "repository") -> str:
    """Return the identifier of a repository, `organization/name`.

    Raises
    ------
    PackageError
        It is not of that form.

    Examples
    --------
    >>> from kernelmill.package.wanted import check_repo_id
    >>> check_repo_id("org/img2gray")
    'org/img2gray'
    """
    if not isinstance(text, str) or not _REPO.fullmatch(text) or ".." in text or "--" in text:
        raise PackageError(
            f"{place} is {_shown(text)}; accepted: organization/name of letters, digits, . _ -",
            hint='for example "org/img2gray"',
        )
    if len(text) > _LONGEST_REPO:
        raise PackageError(f"{place} has {len(text)} characters; the limit is {_LONGEST_REPO}")
    return text


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


# ----------------------------------------------------------------------------- versions


def parse_version(text: str, *, place: str = "version") -> Version:
    """Read a semantic version: one to three numbers and perhaps a pre-release, 1.2.0-rc.1.

    Raises
    ------
    PackageError
        It is none; epochs, local versions, development and post releases are not served.

    Examples
    --------
    >>> from kernelmill.package.wanted import parse_version
    >>> parse_version("1.2.0-rc.1") < parse_version("1.2")
    True
    """
    try:
        version = Version(text)
    except (InvalidVersion, TypeError):
        raise _no_version(text, place) from None
    if version.epoch or version.local or version.is_devrelease or version.is_postrelease:
        raise _no_version(text, place)
    if len(version.release) > _PARTS or version.major > MOST_INTEGER:
        raise _no_version(text, place)
    return version


def _no_version(text: object, place: str) -> PackageError:
    return PackageError(
        f"{place} is {_shown(text)}; accepted: MAJOR[.MINOR[.PATCH]] and perhaps a pre-release",
        hint="for example 1.2.0 or 1.2.0rc1",
    )


def branch_of(version: Version | int) -> str:
    """Return the branch on which a version lives: `vN`, with N its major number.

    Examples
    --------
    >>> from kernelmill.package.wanted import branch_of, parse_version
    >>> branch_of(parse_version("1.2.0"))
    'v1'
    """
    return f"v{version if isinstance(version, int) else version.major}"


def integer_of_branch(name: str) -> int | None:
    """Return N of a branch `vN`, None for any other name (`v01` is another name)."""
    match = _BRANCH.fullmatch(name)
    number = int(match[1]) if match else MOST_INTEGER + 1
    return number if number <= MOST_INTEGER else None


def version_of_tag(name: str) -> Version | None:
    """Return the version that a tag such as `v1.2.0` or `1.2.0` names, None for other tags."""
    match = _TAG.fullmatch(name)
    if match is None:
        return None
    try:
        return parse_version(match[1])
    except PackageError:
        return None


# ----------------------------------------------------------------------------- what is wanted


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a kernel: one of an integer, a range, a revision; none of them means any.

    Parameters
    ----------
    integer
        Hugging Face's version N: any version with that major number, first the head of `vN`.
    range
        Comparisons as in PEP 440, such as ">=1.1,<2".
    revision
        A commit (40 hexadecimal digits, or the first 7 or more of them), a tag or a branch.

    Examples
    --------
    >>> from kernelmill.package.wanted import Wanted, parse_version
    >>> Wanted.parse(">=1.1,<2").admits(parse_version("1.4.2"))
    True
    >>> Wanted.parse(2)
    Wanted(integer=2, range='', revision='')
    """

    integer: int | None = None
    range: str = ""
    revision: str = ""

    @classmethod
    def parse(cls, value: object, *, place: str = "version") -> Wanted:
        """Read an integer, a text, or an object with one of the keys version and revision.

        A text is a range; one of digits alone is an integer, and a bare version such as "1.2.0"
        means exactly that version.

        Raises
        ------
        PackageError
            It is none of these; `place` is named.
        """
        if isinstance(value, dict):
            return cls._of_object(value, place)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _not_wanted(value, place)
        if isinstance(value, int):
            if not 0 <= value <= MOST_INTEGER:
                raise _not_wanted(value, place)
            return cls(integer=value)
        text = value.strip()
        if text.isascii() and text.isdigit():
            return cls.parse(int(text), place=place)
        return cls(range=_range(text, place))

    @classmethod
    def _of_object(cls, value: Mapping[str, object], place: str) -> Wanted:
        if set(value) == {"version"}:
            return cls.parse(value["version"], place=f"{place}.version")
        if set(value) != {"revision"}:
            raise PackageError(
                f"{place} has the keys {', '.join(map(str, sorted(value))) or '(none)'}; "
                "accepted: exactly one of version and revision"
            )
        return cls._of_revision(value["revision"], f"{place}.revision")

    @classmethod
    def _of_revision(cls, revision: object, place: str) -> Wanted:
        if not isinstance(revision, str) or not revision.strip() or not revision.isprintable():
            raise PackageError(f"{place} is {_shown(revision)}; accepted: a text")
        return cls(revision=revision.strip())

    @classmethod
    def of(cls, version: int | str | None, revision: str | None, *, needed: bool = True) -> Wanted:
        """Return what the arguments `version` and `revision` of a loader ask for.

        Raises
        ------
        PackageError
            Both are given, or none where one is needed.
        """
        if version is not None and revision is not None:
            raise PackageError(
                f"both a version ({version!r}) and a revision ({revision!r}) are given; "
                "accepted: one of them"
            )
        if revision is not None:
            return cls._of_revision(revision, "revision")
        if version is not None:
            if isinstance(version, str) and not version.strip():
                raise _not_wanted(version, "version")  # an empty variable, say
            return cls.parse(version)
        if needed:
            raise PackageError(
                "neither a version nor a revision is given",
                hint='version=1 is a stable interface, version=">=1.1,<2" a range',
            )
        return cls()

    def admits(self, version: Version) -> bool:
        """Whether a version is one of those asked for. Revisions are told by commit, not here.

        A pre-release is admitted only by a range that names one, and by the integer.
        """
        if self.integer is not None:
            return version.major == self.integer
        if not self.range:
            return not version.is_prerelease
        specifiers = SpecifierSet(self.range)
        named = any(_is_prerelease(specifier.version) for specifier in specifiers)
        return specifiers.contains(version, prereleases=named)

    def to_json(self) -> dict[str, object]:
        """Return the keys that `parse` reads: version or revision, or none."""
        if self.revision:
            return {"revision": self.revision}
        if self.integer is not None:
            return {"version": self.integer}
        return {"version": self.range} if self.range else {}

    def __str__(self) -> str:
        if self.revision:
            return f"revision {self.revision}"
        return (
            f"version {self.integer}" if self.integer is not None else self.range or "any version"
        )


def _is_prerelease(text: str) -> bool:
    try:
        return Version(text.removesuffix(".*")).is_prerelease
    except InvalidVersion:
        return False


def _range(text: str, place: str) -> str:
    """Return a range in its canonical order."""
    if text in {"", "*"}:
        return ""
    try:
        found = SpecifierSet(text if _OPERATOR.match(text) else f"=={parse_version(text)}")
    except (InvalidSpecifier, PackageError):
        raise _not_wanted(text, place) from None
    return ",".join(sorted(map(str, found)))


def _not_wanted(value: object, place: str) -> PackageError:
    text = value if isinstance(value, str) else ""
    caret = text.lstrip("^~ ") if text[:1] in {"^", "~"} else ""
    return PackageError(
        f"{place} is {_shown(value)}; accepted: an integer from 0, or a range such as >=1.1,<2",
        hint=f"~={caret} admits later versions that are compatible" if caret else "",
    )


# ----------------------------------------------------------------------------- Python packages


@dataclass(frozen=True, slots=True, order=True)
class PythonNeed:
    """A Python distribution that a kernel needs, and the versions it works with.

    Examples
    --------
    >>> from kernelmill.package.wanted import PythonNeed
    >>> str(PythonNeed.parse("Einops >= 0.7, <1"))
    'einops<1,>=0.7'
    """

    name: str
    range: str = ""

    @classmethod
    def parse(cls, text: object, *, place: str = "python-depends") -> PythonNeed:
        """Read a requirement as PEP 508 writes it, without extras, markers and addresses.

        Raises
        ------
        PackageError
            It is none.
        """
        try:
            found = Requirement(text) if isinstance(text, str) else None
        except InvalidRequirement:
            found = None
        if found is None or found.extras or found.marker or found.url:
            raise PackageError(
                f"{place} is {_shown(text)}; accepted: a distribution and its versions",
                hint='for example "einops>=0.7"',
            )
        return cls(canonicalize_name(found.name), ",".join(sorted(map(str, found.specifier))))

    def admits(self, version: str) -> bool:
        """Whether an installed version is one of those that the kernel works with."""
        return SpecifierSet(self.range).contains(version, prereleases=True)

    def __str__(self) -> str:
        return f"{self.name}{self.range}"


def canonical_name(name: str) -> str:
    """Return the one spelling of a Python distribution's name.

    Examples
    --------
    >>> from kernelmill.package.wanted import canonical_name
    >>> canonical_name("Apache_TVM.ffi")
    'apache-tvm-ffi'
    """
    return canonicalize_name(name)


def satisfiable(ranges: Iterable[str]) -> bool:
    """Whether some version lies in all ranges, whatever has been published.

    Each bound that occurs, and a point just above and below it, stand for all versions: no range
    can tell apart two points between the same neighbours.

    Examples
    --------
    >>> from kernelmill.package.wanted import satisfiable
    >>> satisfiable([">=1,<2", "!=1.5"]), satisfiable(["<1", ">1"])
    (True, False)
    """
    whole = SpecifierSet(",".join(part for part in ranges if part))
    bounds = {Version(s.version.removesuffix(".*")) for s in whole if _readable(s.version)}
    points = {Version("0"), *(point for bound in bounds for point in _around(bound))}
    return any(whole.contains(point, prereleases=True) for point in points)


def _readable(text: str) -> bool:
    try:
        Version(text.removesuffix(".*"))
    except InvalidVersion:
        return False
    return True


def _around(bound: Version) -> Iterable[Version]:
    """Return versions at, just above, and just below a bound, and after its series."""
    epoch = f"{bound.epoch}!" if bound.epoch else ""
    numbers = list(bound.release)
    yield bound
    yield Version(f"{epoch}{'.'.join(map(str, [*numbers, 0, 1]))}")
    yield Version(f"{epoch}{'.'.join(map(str, numbers))}.dev0")
    for place in range(len(numbers)):
        above = [*numbers[:place], numbers[place] + 1]
        yield Version(f"{epoch}{'.'.join(map(str, above))}")
        if numbers[place]:
            below = [*numbers[:place], numbers[place] - 1, 999_999]
            yield Version(f"{epoch}{'.'.join(map(str, below))}")


def joined(needs: Iterable[PythonNeed]) -> tuple[PythonNeed, ...]:
    """Return one need a distribution, with all its ranges; sorted by name."""
    found: dict[str, PythonNeed] = {}
    for need in sorted(needs):
        before = found.get(need.name)
        parts = {*need.range.split(","), *(before.range.split(",") if before else ())} - {""}
        found[need.name] = replace(need, range=",".join(sorted(parts)))
    return tuple(found[name] for name in sorted(found))
