"""Headers of torch and tvm-ffi in versions that need not be installed. Compiles nothing.

They are read out of the wheel by range requests, 11 of 530 MB; from a server without ranges the
whole wheel is fetched. The hash of a wheel cannot be checked by its parts: each member is compared
with its checksum, and the tree with a digest that is known here or stands in `toolchain.lock`.
"""

from __future__ import annotations

import platform
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.errors import IntegrityError, ToolchainError
from kernelmill.package.build_cache import build_cache
from kernelmill.package.digest import hash_variant
from kernelmill.package.wheels import (
    WheelFile,
    extract_wheel,
    fetched,
    kept_tree,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernelmill.package.release import Release

__all__ = [
    "TVM_FFI",
    "HeaderSet",
    "cuda_library_headers",
    "headers_of",
    "torch_headers",
    "tvm_ffi_headers",
]

TVM_FFI: Final = "0.1.15.post2"
# The release that stands for a version, and the digest of its headers where we have seen them.
_TORCH: Final = {
    "2.10": "2.10.0",
    "2.11": "2.11.0",
    "2.12": "2.12.1",
    "2.13": "2.13.0",
    "2.14": "2.14.1",
    "2.15": "2.15.0",
}
_TREES: Final = {
    ("torch", "2.10.0"): "468d4c7589871ec1b7cc96a339df18c554840edd4761205647f0478b7e2c982f",
    ("torch", "2.11.0"): "2f3045047c83f7601559315fe694f36d683fce7a4b0ba4bd065906d70c8f2213",
    ("torch", "2.12.1"): "19494e594493c986d66107ca2a39c7a42d3c4cb61ccf13cf6d4e9bfba5b30554",
    ("torch", "2.13.0"): "7a2db40cd11102d9b9205c9f17cce104a1c6ef64356a13edbb428058fedb23dd",
    ("torch", "2.14.1"): "6a6c08ec98c87effa292a42b51366004e7b11165e41b324c8e279ea7242e9319",
    ("torch", "2.15.0"): "0e593c48ff63f891a2227c9eaf396ce505f5327604bceea682091f331f79666f",
    ("nvidia-cublas", "13.1.0.3"): (
        "351c18ed4e0032848feb6abb2f58477cdb0062d61185c80d50b4698fe86a9c66"
    ),
    ("nvidia-cusolver", "12.0.4.66"): (
        "0f832a63bfa93b366f95aedb6567bb1bec18d68c6bf6695cfb19d9ee91d41528"
    ),
    ("nvidia-cusparse", "12.6.3.3"): (
        "39c5b1511764e2560fd54d16ca2b2b7162c15c0752250887d81a1ef71a0675d3"
    ),
    ("nvidia-cutlass", "3.8.0.0"): (
        "5c06146184a7fc0a6ac333093a00c71a7ecc036f92d1bdf70b09fb48ab1fbd07"
    ),
    ("apache-tvm-ffi", TVM_FFI): "da2adf75dc7aa66ca6e4383681ab5224d6a5265cc1a008a2a1e054cd182e8426",
}
_PARTS: Final = {
    "torch": ("torch/include/", "torch/version.py"),
    "apache-tvm-ffi": ("tvm_ffi/include/",),
    "nvidia-cutlass": (
        "cutlass_library/source/include/",
        "cutlass_library/source/tools/util/include/",
    ),
}
_MODULES: Final = {"torch": "torch", "apache-tvm-ffi": "tvm_ffi"}
# What ATen's headers for CUDA include, by the major version of CUDA: project, release, directory.
_CUDA_LIBRARIES: Final = {
    13: (
        ("nvidia-cublas", "13.1.0.3", "nvidia/cu13/include"),
        ("nvidia-cusolver", "12.0.4.66", "nvidia/cu13/include"),
        ("nvidia-cusparse", "12.6.3.3", "nvidia/cu13/include"),
    ),
    12: (
        ("nvidia-cublas-cu12", "12.8.4.1", "nvidia/cublas/include"),
        ("nvidia-cusolver-cu12", "11.7.3.90", "nvidia/cusolver/include"),
        ("nvidia-cusparse-cu12", "12.5.8.93", "nvidia/cusparse/include"),
    ),
}
_NVIDIA: Final = {row[0]: row[2] for rows in _CUDA_LIBRARIES.values() for row in rows}
# The headers are the same for each Python; one tag is preferred so that everyone names one wheel.
_PYTHONS: Final = ("cp311", "cp312", "cp310", r"cp3\d+")


@dataclass(frozen=True, slots=True)
class HeaderSet:
    """Headers of one release.

    `path` holds `torch/include` or `tvm_ffi/include`; `tree` is the digest over all files; `read`
    says how they came: "ranges", "wheel", "installed" or, of a clone on disk, "directory".
    """

    project: str
    version: str
    path: Path
    tree: str
    wheel: str
    wheel_sha256: str
    read: str

    @property
    def include(self) -> Path:
        """The directory to include from."""
        folder = _NVIDIA.get(self.project) or f"{_MODULES[self.project]}/include"
        return self.path / folder


def torch_headers(release: Release) -> HeaderSet:
    """Return the headers of a version of torch, such as 2.13, with those for CUDA.

    Raises
    ------
    ToolchainError
        They can be had neither from the index nor from an installed torch of that version.
    IntegrityError
        They are other ones than known.
    """
    text = f"{release.major}.{release.minor}"
    return headers_of("torch", _TORCH.get(text) or _newest("torch", text))


def tvm_ffi_headers() -> HeaderSet:
    """Return the headers of tvm-ffi, as `torch_headers`."""
    return headers_of("apache-tvm-ffi", TVM_FFI)


def cuda_library_headers(major: int) -> tuple[HeaderSet, ...]:
    """Return the headers of cuBLAS, cuSOLVER and cuSPARSE, which ATen's include."""
    rows = _CUDA_LIBRARIES.get(major, ())
    return tuple(headers_of(project, release) for project, release, _ in rows)


def headers_of(project: str, release: str) -> HeaderSet:
    """Return the headers of one release, from the cache or the index."""
    name = f"{project}-{release}"

    def make(place: Path) -> dict[str, object]:
        try:
            wheel = _wheel(project, release)
            read = _fill(project, wheel, place)
        except ToolchainError as error:
            wheel, read = _installed(project, release, place, error)
        tree = hash_variant(place).root()
        _check(project, release, tree, read)
        return {"tree": tree, "read": read, "wheel": asdict(wheel)}

    path, facts = kept_tree("headers", name, make)
    row = facts["wheel"]
    assert isinstance(row, dict)
    return HeaderSet(
        project, release, path, str(facts["tree"]), row["name"], row["sha256"], str(facts["read"])
    )


def _newest(project: str, version_: str) -> str:
    from kernelmill.package.pip_index import default_index  # noqa: PLC0415 - urllib: only to fetch

    pattern = re.compile(rf"{project}-({re.escape(version_)}\.\d+)-cp\d+-.*")
    names = (pattern.fullmatch(file.name) for file in default_index().files(project))
    found = {match[1] for match in names if match}
    if not found:
        raise ToolchainError(f"the index has no {project} {version_}")
    return max(found, key=lambda text: int(text.rpartition(".")[2]))


def _wheel(project: str, release: str) -> WheelFile:
    from kernelmill.package.pip_index import default_index  # noqa: PLC0415 - urllib: only to fetch

    stem = f"{re.escape(project.replace('-', '_'))}-{re.escape(release)}"
    if project.startswith("nvidia-"):
        tail = rf"(any|.*manylinux.*_{platform.machine()})\.whl"
        return default_index().find(project, f"{stem}-py3-none-{tail}")
    tail = rf"-[^-]+-[^-]*manylinux[^-]*_{platform.machine()}\.whl"
    names = [file.name for file in default_index().files(project)]
    for python in _PYTHONS:
        pattern = f"{stem}-{python}{tail}"
        if any(re.fullmatch(pattern, name) for name in names):
            return default_index().find(project, pattern)
    return default_index().find(project, f"{stem}-cp3.*{tail}")


def _fill(project: str, wheel: WheelFile, place: Path) -> str:
    """Write the headers of a wheel below `place`; return how they were read."""
    from kernelmill.package.pip_index import default_index  # noqa: PLC0415 - urllib
    from kernelmill.package.ranged_zip import NoRangesError, RangedZip  # noqa: PLC0415

    parts = (f"{_NVIDIA[project]}/",) if project in _NVIDIA else _PARTS[project]
    remote = RangedZip(wheel.url, default_index().certificates)
    try:
        members = [m for m in remote.members() if m.name.startswith(parts) and m.name[-1] != "/"]
        remote.extract(members, place)
    except NoRangesError:
        with fetched(wheel) as path:
            extract_wheel(path, place, _starts_with(parts))
        return "wheel"
    except OSError as error:
        raise ToolchainError(f"the headers of {wheel.name} cannot be fetched: {error}") from error
    return "ranges"


def _starts_with(parts: tuple[str, ...]) -> Callable[[str], bool]:
    return lambda name: name.startswith(parts)


def _installed(
    project: str, release: str, place: Path, error: ToolchainError
) -> tuple[WheelFile, str]:
    """Copy the headers of the installed package, where it is of that very release."""
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415
    from importlib.util import find_spec  # noqa: PLC0415

    if project not in _MODULES:
        raise error
    try:
        found = version(project)
    except PackageNotFoundError:
        raise error from None
    spec = find_spec(_MODULES[project])
    if found.partition("+")[0] != release or spec is None or spec.origin is None:
        raise error
    module = _MODULES[project]
    source = Path(spec.origin).parent
    shutil.rmtree(place / module, ignore_errors=True)
    shutil.copytree(source / "include", place / module / "include")
    if project == "torch":
        shutil.copyfile(source / "version.py", place / module / "version.py")
    return WheelFile(f"{project}-{found} (installed)", "", ""), "installed"


def _check(project: str, release: str, tree: str, read: str) -> None:
    known = _TREES.get((project, release))
    if known and read != "installed" and tree != known:
        raise IntegrityError(
            f"the headers of {project} {release} have the digest {tree}; known is {known}",
            hint="another wheel stands under this name on the index that pip uses",
        )


def forget(project: str, release: str) -> None:
    """Remove kept headers, so that they are fetched again."""
    shutil.rmtree(build_cache() / "headers" / f"{project}-{release}", ignore_errors=True)
