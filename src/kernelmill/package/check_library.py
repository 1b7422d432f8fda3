"""Rules of `check` about the library itself: which systems, Pythons and GPUs can load it."""

from __future__ import annotations

import importlib.util
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from kernelmill.package.check_subject import Finding
from kernelmill.package.fatbin import images_of
from kernelmill.package.release import Release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernelmill.package.check_subject import Subject
    from kernelmill.package.elf import Library

__all__ = ["LIBRARY_RULES", "POLICIES", "facts_of_library", "manylinux_of"]

# The newest versions of symbols that each manylinux system brings
# (https://github.com/pypa/auditwheel, manylinux-policy.json).
POLICIES: Final = {
    "2_17": {"GLIBC": "2.17", "GLIBCXX": "3.4.19", "CXXABI": "1.3.7", "GCC": "4.8.0"},
    "2_24": {"GLIBC": "2.24", "GLIBCXX": "3.4.22", "CXXABI": "1.3.10", "GCC": "6.0.0"},
    "2_28": {"GLIBC": "2.28", "GLIBCXX": "3.4.24", "CXXABI": "1.3.11", "GCC": "7.0.0"},
    "2_31": {"GLIBC": "2.31", "GLIBCXX": "3.4.28", "CXXABI": "1.3.12", "GCC": "7.0.0"},
    "2_34": {"GLIBC": "2.34", "GLIBCXX": "3.4.29", "CXXABI": "1.3.13", "GCC": "7.0.0"},
    "2_35": {"GLIBC": "2.35", "GLIBCXX": "3.4.30", "CXXABI": "1.3.13", "GCC": "12.0.0"},
    "2_39": {"GLIBC": "2.39", "GLIBCXX": "3.4.33", "CXXABI": "1.3.15", "GCC": "14.0.0"},
}
_VERSION: Final = re.compile(r"(GLIBC|GLIBCXX|CXXABI|GCC)_([0-9.]+)")
# Every symbol of Python that builds from 3.9 on have.
_ABI3: Final = (3, 9)
_PYTHON: Final = re.compile(r"_?Py[A-Z_]")
_EXPORTED: Final = re.compile(r"PyInit_|__tvm_ffi_")
_SHOWN: Final = 4


def manylinux_of(library: Library) -> str:
    """Return the oldest manylinux system that brings every symbol, "" where none does."""
    for name, limits in POLICIES.items():
        if not _beyond(library, limits):
            return name
    return ""


def _beyond(library: Library, limits: dict[str, str]) -> list[str]:
    """Return the versions of symbols that are newer than the limits, or unknown to them."""
    found = []
    for _, version in library.versions:
        match = _VERSION.fullmatch(version)
        if match is None:
            if version.startswith(("GLIBC_", "GLIBCXX_")):  # GLIBC_PRIVATE
                found.append(version)
        elif Release.parse(match[2]) > Release.parse(limits[match[1]]):
            found.append(version)
    return found


def _manylinux(subject: Subject) -> Iterator[Finding]:
    library = subject.library
    if library is None:
        return
    newer = _beyond(library, POLICIES[subject.manylinux])
    if not newer:
        return
    users = defaultdict(list)
    for symbol in library.undefined():
        users[symbol.version].append(symbol.name)
    shown = "; ".join(f"{version} ({_few(users[version])})" for version in sorted(newer))
    needed = manylinux_of(library)
    yield Finding(
        "manylinux",
        "error",
        subject.library_name,
        f"it needs {shown}, which manylinux_{subject.manylinux} does not have",
        f"loading fails on systems older than manylinux_{needed}"
        if needed
        else "loading fails on most systems",
        "`kernelmill build` pins what can be pinned; do without the rest, or say --manylinux",
    )


def _few(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(sorted(names)[:_SHOWN]) + more


def _machine(subject: Subject) -> Iterator[Finding]:
    if subject.library is None or subject.variant is None or subject.variant.noarch:
        return
    found, named = subject.library.machine, subject.variant.cpu
    if found != named:
        message = f"the directory is for {named}, the library for {found}"
        yield Finding("machine", "error", subject.library_name, message, "everybody who loads it")


def _segments(subject: Subject) -> Iterator[Finding]:
    library = subject.library
    if library is None:
        return
    for segment in library.segments:
        if segment.writable and segment.executable and segment.kind == "load":
            message = "a segment is writable and executable"
            breaks = "systems that forbid it (SELinux, PaX) refuse it; elsewhere it helps attackers"
            yield Finding("segments", "error", subject.library_name, message, breaks)
        elif segment.kind == "stack" and segment.executable:
            yield Finding(
                "segments",
                "error",
                subject.library_name,
                "it asks for an executable stack",
                "glibc from 2.41 on refuses to load it",
                "an assembler file lacks its .note.GNU-stack; link with -Wl,-z,noexecstack",
            )
    if library.text_relocations:
        message = "its code is changed while it is loaded (text relocations)"
        breaks = "systems that forbid it refuse the library; nowhere are its pages shared"
        yield Finding(
            "segments", "error", subject.library_name, message, breaks, "compile with -fPIC"
        )


def _search_path(subject: Subject) -> Iterator[Finding]:
    if subject.library is not None and subject.library.search_path:
        yield Finding(
            "rpath",
            "error",
            subject.library_name,
            f"it looks for libraries in {subject.library.search_path}",
            "on other machines that directory holds something else, or somebody else's libraries",
            "link without -rpath, or strip it with `patchelf --remove-rpath`",
        )


def _exports(subject: Subject) -> Iterator[Finding]:
    library = subject.library
    if library is None:
        return
    unique = [s.name for s in library.exports() if s.bind == "unique"]
    if unique:
        yield Finding(
            "symbols",
            "error",
            subject.library_name,
            f"{len(unique)} symbols are unique in a process: {_few(unique)}",
            "two kernels, or two versions of one, share these variables in one process",
            "compile with -fno-gnu-unique",
        )
    open_ = [s.name for s in library.exports() if s.bind != "unique"]
    extra = [name for name in open_ if not _EXPORTED.match(name)]
    if extra:
        yield Finding(
            "symbols",
            "warning",
            subject.library_name,
            f"{len(extra)} symbols are visible that nobody calls: {_few(extra)}",
            "a library loaded with RTLD_GLOBAL may take their place, or they another's",
            "compile with -fvisibility=hidden and link with a version script",
        )


def _init(subject: Subject) -> Iterator[Finding]:
    if subject.library is None or not subject.torch or subject.metadata is None:
        return
    wanted = f"PyInit_{subject.metadata.id}"
    if wanted not in {s.name for s in subject.library.exports()}:
        yield Finding(
            "abi3",
            "error",
            subject.library_name,
            f"it exports no {wanted}",
            "`from . import` of the library fails for everybody",
            "REGISTER_EXTENSION(TORCH_EXTENSION_NAME) in the binding makes it",
        )


def _abi3(subject: Subject) -> Iterator[Finding]:
    library = subject.library
    if library is None or not subject.torch:
        return
    used = sorted(s.name for s in library.undefined() if _PYTHON.match(s.name))
    if not used:
        return
    if importlib.util.find_spec("abi3info") is None:
        message = (
            f"{len(used)} symbols of Python are used; which of them are stable is not known here"
        )
        hint = "pip install 'kernelmill[build]'"
        yield Finding("abi3", "note", subject.library_name, message, "", hint)
        return
    since = _stable_since()
    foreign = [name for name in used if name not in since]
    newer = [name for name in used if name in since and since[name] > _ABI3]
    if foreign:
        yield Finding(
            "abi3",
            "error",
            subject.library_name,
            f"{_few(foreign)} {'is' if len(foreign) == 1 else 'are'} not in Python's stable ABI",
            "importing fails, or crashes, in other versions of Python than that of the build",
            "define Py_LIMITED_API before Python.h",
        )
    for name in newer:
        version = ".".join(map(str, since[name]))
        message = f"{name} is in Python's stable ABI since {version}"
        breaks = f"importing fails in Python older than {version}"
        yield Finding("abi3", "error", subject.library_name, message, breaks)


def _stable_since() -> dict[str, tuple[int, int]]:
    """Return the version that brought each symbol of the stable ABI."""
    import abi3info  # type: ignore[import-untyped]  # noqa: PLC0415 - an optional package

    found = {}
    for table in (abi3info.FUNCTIONS, abi3info.DATAS):
        for symbol, item in table.items():
            found[symbol.name] = (item.added.major, item.added.minor)
    return found


def _gpu(subject: Subject) -> Iterator[Finding]:
    if subject.library_path is None or subject.library is None or subject.metadata is None:
        return
    images = images_of(subject.library_path)
    cuda = subject.variant is not None and subject.variant.backend.name == "cuda"
    if images and not cuda:
        message = f"it holds GPU code for {', '.join(sorted({i.arch for i in images}))}"
        yield Finding("gpu", "error", subject.library_name, message, "its name promises none")
        return
    said = subject.metadata.archs
    if not cuda or said is None or not (said or images):
        return
    cubins = {_capability(i.arch) for i in images if i.kind == "cubin"}
    texts = {_capability(i.arch) for i in images if i.kind == "ptx"}
    named = {text.removesuffix("+PTX") for text in said}
    for arch in sorted(named - cubins - texts):
        message = f"metadata.json names {arch}, but there is no code for it"
        breaks = f"the kernel loads on GPUs of capability {arch}, and its first launch fails there"
        yield Finding("gpu", "error", subject.library_name, message, breaks)
    for arch in sorted(cubins - named):
        message = f"there is code for {arch}, which metadata.json does not name"
        breaks = f"loaders refuse the variant on GPUs of capability {arch}, where it would run"
        yield Finding("gpu", "warning", subject.library_name, message, breaks)
    for text in sorted(said):
        if text.endswith("+PTX") and text.removesuffix("+PTX") not in texts:
            message = f"metadata.json promises PTX of {text.removesuffix('+PTX')}; there is none"
            breaks = "GPUs newer than the build find no code"
            yield Finding("gpu", "error", subject.library_name, message, breaks)


def _capability(arch: str) -> str:
    """Write sm_90a as 9.0a."""
    match = re.fullmatch(r"sm_(\d+)(\d)([af]?)", arch)
    return f"{match[1]}.{match[2]}{match[3]}" if match else arch


def facts_of_library(subject: Subject) -> dict[str, str]:
    """Return what was read of a library, for a report in which nothing is wrong."""
    library = subject.library
    if library is None or subject.library_path is None:
        return {}
    oldest = manylinux_of(library)
    newest = {
        family: max((Release.parse(v.partition("_")[2]) for v in versions), default=None)
        for family, versions in _families(library).items()
    }
    images = images_of(subject.library_path)
    facts = {
        "manylinux": f"manylinux_{oldest}" if oldest else "none",
        "symbol versions": ", ".join(f"{k} {v}" for k, v in newest.items()),
        "libraries": ", ".join(library.needed),
        "exports": str(len(library.exports())),
        "gpu code": ", ".join(f"{i.arch}{' (PTX)' if i.kind == 'ptx' else ''}" for i in images),
    }
    return {name: text for name, text in facts.items() if text}


def _families(library: Library) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for _, version in library.versions:
        match = _VERSION.fullmatch(version)
        if match is not None:
            found[match[1]].append(version)
    return dict(sorted(found.items()))


LIBRARY_RULES: Final[tuple[Callable[[Subject], Iterator[Finding]], ...]] = (
    _machine,
    _manylinux,
    _segments,
    _search_path,
    _exports,
    _init,
    _abi3,
    _gpu,
)
