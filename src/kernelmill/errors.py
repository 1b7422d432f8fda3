"""The exception tree of kernelmill; every error carries a hint. No checks live here.

KernelmillError
├── ConfigError            a setting that cannot be used           (also ValueError)
├── OperatorError          the operator language refuses a program (also TypeError)
│   └── ScalarOverflowError  a Python integer does not fit its type (also OverflowError)
├── CompileError           a compiler failed, hung or is absent
│   └── ToolchainError     no usable compiler was found
├── ArgumentError          a call that cannot be carried out       (also ValueError)
│   ├── DTypeError         a dtype that is wrong or not served     (also TypeError)
│   └── ShapeError         shapes that do not fit each other
├── PackageError           a kernel project or package that cannot be used (also ValueError)
│   ├── ManifestError      its `build.toml` is wrong; names the key
│   ├── IntegrityError     bytes that are not the promised ones
│   ├── TrustError         a publisher or signature that the policy does not accept
│   ├── RegistryError      a registry that is absent, refuses or answers nonsense
│   │   └── NotPublishedError  it answers that it has no such repository, revision or file
│   ├── NoVariantError     no build of a kernel fits this system (also FileNotFoundError)
│   ├── LockError          a lock that cannot be used, or does not hold any more
│   ├── ResolutionError    kernels whose requirements cannot be met together
│   └── KernelImportError  a kernel whose import failed            (also ImportError)
├── DeviceError            a device that is absent or refuses      (also RuntimeError)
├── MissingExtraError      an optional dependency is not installed (also ImportError)
└── NotImplementedHere     a path that a backend does not have     (also NotImplementedError)
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ArgumentError",
    "CacheWarning",
    "CompileError",
    "ConfigError",
    "DTypeError",
    "DeviceError",
    "IntegrityError",
    "KernelImportError",
    "KernelmillError",
    "LockError",
    "ManifestError",
    "MissingExtraError",
    "NoVariantError",
    "NotImplementedHere",
    "NotPublishedError",
    "OperatorError",
    "PackageError",
    "RegistryError",
    "ResolutionError",
    "ScalarOverflowError",
    "ShapeError",
    "SourceSpan",
    "ToolchainError",
    "TrustError",
]


class KernelmillError(Exception):
    """Base of all errors that kernelmill raises on purpose.

    `message` says what was asked, what was found and the limit; `hint` names the next step.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n\nhint: {self.hint}" if self.hint else self.message


class ConfigError(KernelmillError, ValueError):
    """An environment variable or setting holds a value that cannot be used."""


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """A place in the user's Python source.

    `line` counts from 1 as editors do, `column` and `end_column` from 0; `text` is that line.
    """

    filename: str
    line: int
    column: int
    end_column: int
    text: str

    def caret(self) -> str:
        """Return the file, the line and a caret under the place, in three lines."""
        width = max(1, self.end_column - self.column)
        body = self.text.rstrip("\n")
        width = min(width, max(1, len(body) - self.column))
        return (
            f'  File "{self.filename}", line {self.line}\n'
            f"    {body}\n"
            f"    {' ' * self.column}{'^' * width}"
        )


class OperatorError(KernelmillError, TypeError):
    """The operator language refuses a program; shows the user's line with a caret."""

    def __init__(self, message: str, *, span: SourceSpan | None = None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.span = span

    def __str__(self) -> str:
        text = super().__str__()
        if self.span is None:
            return text
        head, _, tail = text.partition("\n\n")
        place = f"{head}\n{self.span.caret()}"
        return f"{place}\n\n{tail}" if tail else place


class ScalarOverflowError(OperatorError, OverflowError):
    """A Python integer does not fit the type it meets; NumPy raises OverflowError there."""


class CompileError(KernelmillError):
    """A compiler failed, hung or printed what we cannot read; `log` is its own output."""

    def __init__(self, message: str, *, log: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.log = log

    def __str__(self) -> str:
        text = super().__str__()
        return f"{text}\n\n{self.log.rstrip()}" if self.log else text


class ToolchainError(CompileError):
    """No usable compiler was found."""


class ArgumentError(KernelmillError, ValueError):
    """An argument of a call cannot be used; names the argument, what was found and the limit."""


class DTypeError(ArgumentError, TypeError):
    """A dtype is wrong for this call, or not served by this backend."""


class ShapeError(ArgumentError):
    """Shapes do not fit each other."""


class PackageError(KernelmillError, ValueError):
    """A kernel project or a package of kernels cannot be used as it is."""


class ManifestError(PackageError):
    """A `build.toml` cannot be used; `path` is the key it is about, "" for the whole file."""

    def __init__(self, message: str, *, path: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path


class IntegrityError(PackageError):
    """Bytes are not the promised ones, or a path or link would leave its place."""


class TrustError(PackageError):
    """The policy does not accept a publisher or a signature; the hint is what would allow it."""


class RegistryError(PackageError):
    """A registry is absent, refuses a request, or answers what cannot be used."""


class NotPublishedError(RegistryError):
    """The registry works, and has no such repository, revision or file."""


class NoVariantError(PackageError, FileNotFoundError):
    """A kernel is there, but none of its variants is for this system; says of each why not."""


class LockError(PackageError):
    """A lock is malformed, was edited, or what it names is not there any more."""


class ResolutionError(PackageError):
    """No set of versions meets all requirements; the text shows the chains that lead to it."""


class KernelImportError(PackageError, ImportError):
    """A kernel was verified, but its import raised, exited or did not end."""


class DeviceError(KernelmillError, RuntimeError):
    """A device is absent, lost, or not the one where the arrays live."""


class MissingExtraError(KernelmillError, ImportError):
    """An optional dependency is not installed; the hint is the `pip install` line."""


class NotImplementedHere(KernelmillError, NotImplementedError):  # noqa: N818 - a refusal, not a fault
    """A backend, dtype or path does not implement what was asked."""


class CacheWarning(UserWarning):
    """The cache found a corrupt entry or had to fall back to another directory."""
