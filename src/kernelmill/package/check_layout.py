"""Rules of `check` about files and metadata: what loaders read before any code runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from kernelmill.errors import PackageError
from kernelmill.package.check_subject import Finding
from kernelmill.package.digest import hash_variant
from kernelmill.package.manifest import Manifest, parse_manifest, read_toml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelmill.package.check_subject import Subject

__all__ = ["LAYOUT_RULES"]

# The Python packages that `kernels` lets a kernel name.
CURATED: Final = ("einops", "helion", "tvm-ffi", "nvidia-cutlass-dsl", "nki", "onednn")
_MAGIC: Final = {".pyc", ".pyo"}


def _problems(subject: Subject) -> Iterator[Finding]:
    yield from subject.problems


def _entry(subject: Subject) -> Iterator[Finding]:
    if (subject.path / "__init__.py").is_file():
        return
    inner = [p for p in subject.path.glob("*/__init__.py") if p.parent.name != "__pycache__"]
    if inner:
        message = f"the Python side lies in {inner[0].parent.name}/, as it did before metadata.json"
        yield Finding("layout", "warning", "", message, "loaders that have dropped the old layout")
        return
    breaks = "importing the kernel fails for everybody"
    yield Finding("layout", "error", "__init__.py", "__init__.py is missing", breaks)


def _bytecode(subject: Subject) -> Iterator[Finding]:
    found = [p for p in sorted(subject.path.rglob("*")) if p.suffix in _MAGIC]
    if found:
        name = found[0].relative_to(subject.path).as_posix()
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        yield Finding(
            "bytecode",
            "error",
            name,
            f"bytecode is packed: {name}{more}",
            "builds are no longer identical, and other versions of Python carry dead weight",
            "remove __pycache__; loading with `python -B` leaves none",
        )


def _links(subject: Subject) -> Iterator[Finding]:
    border = subject.path.resolve()
    for place in sorted(subject.path.rglob("*")):
        if place.is_symlink() and not place.resolve().is_relative_to(border):
            name = place.relative_to(subject.path).as_posix()
            message = f"{name} is a link out of the variant: {os.readlink(place)}"  # noqa: PTH115
            yield Finding("links", "error", name, message, "everybody who gets the variant alone")


def _identifier(subject: Subject) -> Iterator[Finding]:
    if subject.metadata is None:
        return
    identifier = subject.metadata.id
    stem = subject.library_name.partition(".")[0]
    if stem and stem != identifier:
        yield Finding(
            "identifier",
            "error",
            subject.library_name,
            f"the library is {subject.library_name}, but metadata.json says the id is {identifier}",
            "`_ops.py` looks for the library by the id, and importing fails for everybody",
        )
    machine = subject.variant is not None and not subject.variant.noarch
    if machine and not stem:
        message = f"{subject.path.name} has machine code by its name, but holds no library"
        yield Finding("identifier", "error", "", message, "importing the kernel fails")


def _backend(subject: Subject) -> Iterator[Finding]:
    if subject.metadata is None or subject.variant is None:
        return
    named, said = subject.variant.backend.name, subject.metadata.backend
    if named not in (said, "universal"):
        yield Finding(
            "backend",
            "error",
            "metadata.json",
            f"the directory is for {named}, metadata.json says {said}",
            "loaders choose by the one and trust the other",
        )


def _digest(subject: Subject) -> Iterator[Finding]:
    if subject.metadata is None:
        return
    expected = subject.metadata.digest
    if expected is None:
        yield Finding(
            "digest",
            "warning",
            "metadata.json",
            "metadata.json holds no digest",
            "nobody can tell whether a file was changed after the build",
        )
        return
    try:
        found = hash_variant(subject.path, expected.algorithm)
    except PackageError as error:
        yield Finding(
            "digest", "error", "", error.message, "loaders that verify refuse the variant"
        )
        return
    for violation in expected.compare(found):
        breaks = "loaders that verify refuse the variant"
        yield Finding("digest", "error", violation.path, str(violation), breaks)


def _dependencies(subject: Subject) -> Iterator[Finding]:
    if subject.metadata is None:
        return
    for name in subject.metadata.python_depends:
        if name not in CURATED:
            yield Finding(
                "dependencies",
                "error",
                "metadata.json",
                f"python-depends names {name}; `kernels` knows {', '.join(CURATED)}",
                "`kernels` refuses to load the variant",
            )


def _architectures(subject: Subject) -> Iterator[Finding]:
    """Compare with the manifest where the variant still lies in its project."""
    manifest = _manifest(subject)
    if manifest is None or subject.metadata is None or subject.variant is None:
        return
    if subject.metadata.name != manifest.general.name:
        yield Finding(
            "manifest",
            "warning",
            "metadata.json",
            f"the variant is of {subject.metadata.name}, the project of {manifest.general.name}",
            "whoever publishes the project's build/ as it is",
        )
    elif subject.metadata.version != manifest.general.version:
        yield Finding(
            "manifest",
            "warning",
            "metadata.json",
            f"the variant is of version {subject.metadata.version}, "
            f"the project of {manifest.general.version}",
            "whoever publishes the project's build/ as it is",
            "build it again",
        )


def _manifest(subject: Subject) -> Manifest | None:
    place = subject.path.resolve().parent.parent / "build.toml"
    if not place.is_file():
        return None
    try:
        return parse_manifest(read_toml(place))
    except PackageError:  # said by whoever builds; a check of a variant is not about it
        return None


LAYOUT_RULES: Final[tuple[Callable[[Subject], Iterator[Finding]], ...]] = (
    _problems,
    _entry,
    _bytecode,
    _links,
    _identifier,
    _backend,
    _digest,
    _dependencies,
    _architectures,
)
