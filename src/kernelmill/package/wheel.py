"""Wheels of kernels: one variant, as a Python package that pip installs. Compiles nothing.

The tags say what the library's own symbols say, not what was hoped for; two wheels of the same
variant have the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import zipfile
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from kernelmill.errors import PackageError
from kernelmill.package.check_library import manylinux_of
from kernelmill.package.clean import GENERATOR
from kernelmill.package.digest import check_variant, hash_variant
from kernelmill.package.elf import read_library
from kernelmill.package.frameworks import kind_of
from kernelmill.package.metadata import FILE as METADATA
from kernelmill.package.metadata import Metadata, read_metadata
from kernelmill.package.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["Wheel", "variant_directories", "wheel_name", "wheel_of_variant", "write_archive"]

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_MODE: Final = 0o100644
_LEVEL: Final = 6
_PYTHON: Final = ">=3.9"
# What a kernel's curated dependency is called on the index.
_DISTRIBUTIONS: Final = {
    "tvm-ffi": "apache-tvm-ffi",
    "nvidia-cutlass-dsl": "nvidia-cutlass-dsl",
}


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel that was written: where, for which tag, and what it requires."""

    path: Path
    tag: str
    requires: tuple[str, ...]


def wheel_of_variant(directory: Path, out: Path) -> Wheel:
    """Write a wheel of a variant, built here or published by anybody; its digest is compared first.

    Parameters
    ----------
    directory
        The variant's directory; its name is the variant's.
    out
        Where the wheel goes; made if absent.

    Raises
    ------
    PackageError
        It is no variant; it cannot be told what the library needs.
    IntegrityError
        Its files are not what its digest promises.
    """
    variant = Variant.parse(directory.resolve().name)
    metadata = read_metadata(directory)
    if metadata.digest is not None:
        check_variant(directory, metadata.digest)
    version = _version(metadata, variant)
    tag = _tag(directory, variant)
    requires = _requires(metadata, variant)
    package = metadata.python_name
    files = {
        f"{package}/{name}": (directory / name).read_bytes()
        for name in (*hash_variant(directory).files, "metadata.json")
    }
    path = out / f"{wheel_name(metadata.name, version)}-{tag}.whl"
    out.mkdir(parents=True, exist_ok=True)
    facts = [f"License-Expression: {metadata.license}", f"Requires-Python: {_PYTHON}"]
    facts += [f"Requires-Dist: {requirement}" for requirement in requires]
    write_archive(path, files, metadata.name, version, tag=tag, facts=facts)
    return Wheel(path, tag, requires)


def variant_directories(root: Path, patterns: Sequence[str] = ()) -> list[Path]:
    """Return the variants in a project or a repository, or `root` itself where it is one.

    Raises
    ------
    PackageError
        There is none, or a pattern fits none.
    """
    if (root / METADATA).is_file():
        return [root]
    found = sorted(path for path in (root / "build").glob("*/") if (path / METADATA).is_file())
    chosen = [p for p in found if not patterns or any(fnmatchcase(p.name, t) for t in patterns)]
    if not chosen:
        there = ", ".join(path.name for path in found) or "nothing"
        asked = " ".join(["variant", *patterns])
        raise PackageError(
            f"{(root / 'build').absolute()} holds no {asked}; it holds {there}",
            hint="`kernelmill build` comes first",
        )
    return chosen


def wheel_name(name: str, version: str) -> str:
    """Return how a wheel's file name begins.

    Examples
    --------
    >>> from kernelmill.package.wheel import wheel_name
    >>> wheel_name("silu-and-mul", "1.0.0+cpu")
    'silu_and_mul-1.0.0+cpu'
    """
    return f"{name.replace('-', '_')}-{version}"


def _version(metadata: Metadata, variant: Variant) -> str:
    """Return the version; its local part names the variant, since a wheel's tags cannot."""
    framework = str(variant.framework)
    for long, short in (("torch-stable-abi", "tsabi"), ("tvm-ffi", "tvmffi")):
        framework = framework.replace(long, short)
    local = f"{framework}.{variant.backend}".replace("-", ".")
    return f"{metadata.semantic_version or metadata.version}+{local}"


def _tag(directory: Path, variant: Variant) -> str:
    if variant.noarch:
        return "py3-none-any"
    libraries = sorted(directory.glob("*.so"))
    if len(libraries) != 1:
        raise PackageError(f"{directory} holds {len(libraries)} libraries; a variant has one")
    library = read_library(libraries[0])
    manylinux = manylinux_of(library)
    system = f"manylinux_{manylinux}" if manylinux else "linux"
    python = "cp39-abi3" if libraries[0].name.endswith(".abi3.so") else "py3-none"
    return f"{python}-{system}_{library.machine}"


def _requires(metadata: Metadata, variant: Variant) -> tuple[str, ...]:
    kind, version = kind_of(variant), variant.framework.version
    own = {
        "stable": f"torch>={version}",
        "classic": f"torch=={version}.*",
        "tvm-ffi": "apache-tvm-ffi>=0.1,<0.2",
        "noarch": "torch",
    }[kind]
    others = (_DISTRIBUTIONS.get(name, name) for name in metadata.python_depends)
    return tuple(dict.fromkeys([own, *sorted(others)]))


def write_archive(
    path: Path,
    files: Mapping[str, bytes],
    name: str,
    version: str,
    *,
    tag: str,
    facts: list[str],
) -> None:
    """Write a wheel: its files sorted, the directory `.dist-info` last, no times, no users."""
    info = f"{wheel_name(name, version)}.dist-info"
    pure = "true" if tag.endswith("-any") else "false"
    head = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *facts]
    wheel = [
        "Wheel-Version: 1.0",
        GENERATOR,
        f"Root-Is-Purelib: {pure}",
        f"Tag: {tag}",
    ]
    own = {
        f"{info}/METADATA": ("\n".join(head) + "\n").encode(),
        f"{info}/WHEEL": ("\n".join(wheel) + "\n").encode(),
    }
    everything = [*sorted(files.items()), *sorted(own.items())]
    rows = [f"{name},{_hash(data)},{len(data)}" for name, data in everything]
    record = f"{info}/RECORD"
    everything.append((record, ("\n".join([*rows, f"{record},,"]) + "\n").encode()))
    aside = path.with_name(f".{path.name}")
    try:
        with zipfile.ZipFile(aside, "w") as archive:
            for member, data in everything:
                entry = zipfile.ZipInfo(member, _EPOCH)
                entry.external_attr, entry.create_system = _MODE << 16, 3
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, data, compresslevel=_LEVEL)
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)


def _hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={digest.decode().rstrip('=')}"
