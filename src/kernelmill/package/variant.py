"""Names of build variants, and which of them a system can load. Reads no directory, builds nothing.

A variant is a framework, a backend and a machine: `torch-stable-abi210-cu130-x86_64-linux`. Parsing
and printing are inverse. What a system cannot load is told by `RULES`, each a function of variant
and system that returns the reason or None; `decide` puts the best first, always in the same order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from kernelmill.errors import PackageError
from kernelmill.package.release import Release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kernelmill.package.system import System

__all__ = ["RULES", "Backend", "Decision", "Framework", "Variant", "decide"]

# Backends whose names carry no version, then those with one: prefix and how its digits divide.
_PLAIN: Final = ("cpu", "metal", "neuron", "tpu")
_VERSIONED: Final = {"cuda": "cu", "rocm": "rocm", "xpu": "xpu", "cann": "cann"}
# The last digit is the minor version of a backend; the first is the major version of a framework.
_BACKEND: Final = re.compile(r"(cu|rocm|xpu|cann)([0-9]+)([0-9])", re.ASCII)
_FRAMEWORK: Final = re.compile(
    r"(torch-stable-abi|torch|tvm-ffi)([0-9])([0-9]+)(?:-(cxx11|cxx98))?-(.+)", re.ASCII | re.DOTALL
)
_NOARCH: Final = re.compile(r"torch-(?!stable-abi)(.+)", re.ASCII | re.DOTALL)
UNIVERSAL: Final = "universal"
_METAL_FROM: Final = Release.of(26)


@dataclass(frozen=True, slots=True)
class Framework:
    """What loads the kernel: "torch", "torch-stable-abi" or "tvm-ffi", and for which version.

    A version of None means Python sources alone. `tag` is "cxx11", "cxx98" or "", torch's alone.
    """

    name: str
    version: Release | None = None
    tag: str = ""

    def __str__(self) -> str:
        version = self.version
        base = f"{self.name}{version.major}{version.minor}" if version else self.name
        return f"{base}-{self.tag}" if self.tag else base


@dataclass(frozen=True, slots=True)
class Backend:
    """What it runs on: a backend of manifests, and for CUDA, ROCm, XPU and CANN its version.

    Examples
    --------
    >>> from kernelmill.package.variant import Backend
    >>> Backend.parse("cu130").version.major, str(Backend.parse("cpu"))
    (13, 'cpu')
    """

    name: str
    version: Release | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a name such as cpu or cu130.

        Raises
        ------
        PackageError
            It is none.
        """
        if text in _PLAIN:
            return cls(text)
        match = _BACKEND.fullmatch(text)
        if match is None:
            raise PackageError(
                f"{text!r} names no backend",
                hint=f"{', '.join(_PLAIN)}, or one with its version, such as cu130 or rocm63",
            )
        name = next(name for name, prefix in _VERSIONED.items() if prefix == match[1])
        return cls(name, Release.of(int(match[2]), int(match[3])))

    def __str__(self) -> str:
        if self.version is None:
            return self.name
        return f"{_VERSIONED[self.name]}{self.version.major}{self.version.minor}"


@dataclass(frozen=True, slots=True)
class Variant:
    """One build of a kernel. `cpu` and `os` are "" where it is Python sources alone.

    Examples
    --------
    >>> from kernelmill.package.variant import Variant
    >>> found = Variant.parse("torch213-cxx11-cu130-x86_64-linux")
    >>> str(found.framework), found.backend.name, str(found.backend.version), found.cpu
    ('torch213-cxx11', 'cuda', '13.0', 'x86_64')
    """

    framework: Framework
    backend: Backend
    cpu: str = ""
    os: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the name of a variant's directory.

        Raises
        ------
        PackageError
            It names none, or not in the one way that it is written.
        """
        found = cls._noarch(text) or cls._arch(text)
        if found is None:
            raise PackageError(
                f"{text!r} names no build variant",
                hint="such names are torch-stable-abi210-cpu-x86_64-linux, "
                "torch213-cxx11-cu130-x86_64-linux, tvm-ffi01-cpu-x86_64-linux or torch-cuda",
            )
        if str(found) != text:
            raise PackageError(f"the variant {text!r} is written {str(found)!r}")
        return found

    @classmethod
    def _noarch(cls, text: str) -> Self | None:
        match = _NOARCH.fullmatch(text)
        return cls(Framework("torch"), Backend(match[1])) if match else None

    @classmethod
    def _arch(cls, text: str) -> Self | None:
        match = _FRAMEWORK.fullmatch(text)
        if match is None or (match[4] and match[1] != "torch"):
            return None
        machine = match[5].split("-")
        if len(machine) != 3:  # noqa: PLR2004 - backend, processor, system
            return None
        framework = Framework(match[1], Release.of(int(match[2]), int(match[3])), match[4] or "")
        return cls(framework, Backend.parse(machine[0]), machine[1], machine[2])

    @property
    def noarch(self) -> bool:
        """Whether it holds no machine code."""
        return not self.os

    def __str__(self) -> str:
        parts = [str(self.framework), str(self.backend), self.cpu, self.os]
        return "-".join(parts[:2] if self.noarch else parts)


# ----------------------------------------------------------------------------- what cannot load


def _python(variant: Variant, system: System) -> str | None:
    if variant.noarch or not system.free_threaded:
        return None
    return "free-threaded Python before 3.15 has no stable ABI"


def _processor(variant: Variant, system: System) -> str | None:
    if variant.noarch or variant.cpu == system.cpu:
        return None
    return f"it is for {variant.cpu} processors; this one is {system.cpu}"


def _operating_system(variant: Variant, system: System) -> str | None:
    if variant.noarch or variant.os == system.os:
        return None
    return f"it is for {variant.os}; this is {system.os}"


def _torch(variant: Variant, system: System) -> str | None:
    framework = variant.framework
    if variant.noarch or framework.name != "torch":
        return None
    if framework.version != system.torch:
        return f"it is for torch {framework.version}; {_have('torch', system.torch)}"
    if framework.tag and (framework.tag == "cxx11") != system.cxx11:
        found = "this torch has the other" if system.os == "linux" else "only Linux has ABI tags"
        return f"it is for torch of the {framework.tag} ABI; {found}"
    return None


def _stable_abi(variant: Variant, system: System) -> str | None:
    framework = variant.framework
    if framework.name != "torch-stable-abi" or framework.version is None:
        return None
    if system.torch is None or framework.version > system.torch:
        return f"it needs torch {framework.version} or newer; {_have('torch', system.torch)}"
    return None


def _tvm_ffi(variant: Variant, system: System) -> str | None:
    framework = variant.framework
    if framework.name != "tvm-ffi" or framework.version == system.tvm_ffi:
        return None
    return f"it is for tvm-ffi {framework.version}; {_have('tvm-ffi', system.tvm_ffi)}"


def _have(name: str, version: Release | None) -> str:
    return f"no {name} is installed" if version is None else f"{name} {version} is installed"


def _backend(variant: Variant, system: System) -> str | None:
    mine, theirs = variant.backend, system.backend
    if variant.noarch:
        name = "npu" if theirs.name == "cann" else theirs.name
        if mine.name in (name, UNIVERSAL):
            return None
        return f"it is for {mine.name}; this system has {name}"
    if mine.name == theirs.name == "cuda":
        return _cuda(mine.version, theirs.version)
    return None if mine == theirs else f"it is for {mine}; this system has {theirs}"


def _cuda(mine: Release | None, theirs: Release | None) -> str | None:
    if (
        mine is None
        or theirs is None
        or (mine.major == theirs.major and mine.minor <= theirs.minor)
    ):
        return None
    return (
        f"it needs CUDA {mine.major}, from {mine} on; this system has CUDA {theirs}"
        if mine.major == theirs.major
        else f"it needs CUDA {mine.major}; this system has CUDA {theirs}"
    )


def _metal(variant: Variant, system: System) -> str | None:
    if variant.noarch or variant.backend.name != "metal":
        return None
    if system.macos is not None and system.macos >= _METAL_FROM:
        return None
    found = f"this is macOS {system.macos}" if system.macos else "this is no macOS"
    return f"Metal kernels need macOS {_METAL_FROM.major}; {found}"


RULES: Final[tuple[Callable[[Variant, System], str | None], ...]] = (
    _python,
    _processor,
    _operating_system,
    _torch,
    _stable_abi,
    _tvm_ffi,
    _backend,
    _metal,
)


# ----------------------------------------------------------------------------- which one is best


@dataclass(frozen=True, slots=True)
class Decision:
    """A variant and why it cannot be loaded, None where it can."""

    variant: Variant
    reason: str | None

    @property
    def accepted(self) -> bool:
        """Whether the variant can be loaded."""
        return self.reason is None


def decide(variants: Iterable[Variant], system: System) -> tuple[Decision, ...]:
    """Return what a system makes of each variant: the best first, the refused ones last.

    Stable ABI comes before classic, tvm-ffi, Python sources, then universal ones; newer before
    older; equal ones by name. The order of `variants` does not matter.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from kernelmill.package.system import System
    >>> from kernelmill.package.variant import Variant, decide
    >>> here = System.parse("cpu-x86_64-linux", torch="2.13")
    >>> names = ["torch212-cxx11-cpu-x86_64-linux", "torch-stable-abi210-cpu-x86_64-linux"]
    >>> for found in decide(map(Variant.parse, names), here):
    ...     print(found.variant, found.reason)
    torch-stable-abi210-cpu-x86_64-linux None
    torch212-cxx11-cpu-x86_64-linux it is for torch 2.12; torch 2.13 is installed
    """
    decisions = [Decision(variant, _reason(variant, system)) for variant in variants]
    return tuple(sorted(decisions, key=_preference))


def _reason(variant: Variant, system: System) -> str | None:
    return next(filter(None, (rule(variant, system) for rule in RULES)), None)


def _preference(decision: Decision) -> tuple[bool, int, int, int, int, int, int, str]:
    variant = decision.variant
    abi, backend = variant.framework.version or Release(()), variant.backend.version or Release(())
    stable = variant.framework.name == "torch-stable-abi"
    return (
        not decision.accepted,
        _rank(variant),
        -abi.major if stable else 0,
        -abi.minor if stable else 0,
        1 if variant.framework.tag else 0,
        -backend.major,
        -backend.minor,
        str(variant),
    )


def _rank(variant: Variant) -> int:
    if variant.noarch:
        return 4 if variant.backend.name == UNIVERSAL else 3
    return ("torch-stable-abi", "torch", "tvm-ffi").index(variant.framework.name)
