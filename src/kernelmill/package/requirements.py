"""What a kernel needs before it is imported: Python distributions, and a chip it was built for."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import PackageError
from kernelmill.package.versions import needs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelmill.package.metadata import Metadata

__all__ = ["check_arch", "check_python"]

# The names of Hugging Face's curated list, where the distribution is called otherwise.
_DISTRIBUTIONS: Final = {"tvm-ffi": "apache-tvm-ffi", "onednn": "onednn-devel"}
_ARCH: Final = re.compile(r"(\d+)\.(\d)([af]?)(\+PTX)?", re.ASCII)


def check_python(metadata: Metadata) -> None:
    """Make sure that the Python distributions of a kernel are installed.

    Raises
    ------
    PackageError
        Some are not, or in another version; the hint is the `pip install` line.
    """
    missing = list(_missing(metadata))
    if missing:
        wanted = " ".join(f"'{need}'" for need, _ in missing)
        said = "; ".join(text for _, text in missing)
        raise PackageError(f"the kernel {metadata.name} needs {said}", hint=f"pip install {wanted}")


def _missing(metadata: Metadata) -> Iterator[tuple[str, str]]:
    needs = needs_of([metadata], place=metadata.name).python
    if not needs:
        return
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow to import

    for need in needs:
        name = _DISTRIBUTIONS.get(need.name, need.name)
        try:
            found = version(name)
        except PackageNotFoundError:
            yield f"{name}{need.range}", f"{name}{need.range}, which is not installed"
            continue
        if not need.admits(found):
            yield f"{name}{need.range}", f"{name}{need.range}; {found} is installed"


def check_arch(metadata: Metadata) -> None:
    """Make sure that code for CUDA was built for the current device, where torch can tell it.

    Raises
    ------
    PackageError
        It was not.
    """
    torch: Any = sys.modules.get("torch")  # Any: torch, which nothing here may import
    if metadata.backend != "cuda" or not metadata.archs or torch is None:
        return
    if torch.version.cuda is None or not torch.cuda.is_available():
        return
    capability = tuple(torch.cuda.get_device_capability())
    if not _supports(metadata.archs, capability):
        raise PackageError(
            f"the kernel {metadata.name} was built for {', '.join(metadata.archs)}; this device "
            f"has the capability {'.'.join(map(str, capability))}",
            hint="check_arch=False loads it all the same; it may fail when it is called",
        )


def _supports(archs: tuple[str, ...], capability: tuple[int, ...]) -> bool:
    """Return whether some build serves a device; names of no known form do not count."""
    verdicts = [_serves(match, capability) for match in map(_ARCH.fullmatch, archs) if match]
    return any(verdicts) if verdicts else True


def _serves(match: re.Match[str], capability: tuple[int, ...]) -> bool:
    built = (int(match[1]), int(match[2]))
    if match[3] == "a":
        return capability == built
    if match[4] and not match[3]:
        return capability >= built
    return capability[0] == built[0] and capability >= built
