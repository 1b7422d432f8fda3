"""Kernels from registries, locks and directories, as modules: the door to `kernelmill.package`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernelmill.package.load import get_kernel_dep, loaded
from kernelmill.package.lock_find import caller, find_lock
from kernelmill.package.lock_load import load_found
from kernelmill.package.obtain import Shelves
from kernelmill.package.wanted import Wanted

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence
    from types import ModuleType

__all__ = [
    "get_kernel",
    "get_kernel_dep",
    "get_local_kernel",
    "get_locked_kernel",
    "load_kernel",
    "loaded",
]


def get_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: str = "",
    backend: str | None = None,
    trust: bool | Sequence[str] = False,
    check_arch: bool = True,
) -> ModuleType:
    """Load the newest version of a kernel in a range, from the cache or its registry.

    Parameters
    ----------
    repo_id
        `organization/name`.
    version
        A range such as ">=1.1,<2", or an integer: the head of that major version.
    revision
        A commit (long or short), a tag or a branch, in place of `version`.
    registry
        The name of a configured registry; "" is the one that serves the organization.
    backend
        "cpu" leaves the accelerator out; None is what the system has.
    trust
        True, or a list with this repository in it, loads it though nobody vouches for its
        publisher. A rule about it counts all the same, and so does what is verified.
    check_arch
        Whether code for CUDA must have been built for the current device.

    Returns
    -------
    module
        The kernel. Each version has a module name of its own, so several can be loaded.

    Raises
    ------
    TrustError
        The policy does not allow the publisher, or a signature is missing; the hint is the command
        that would allow it.
    IntegrityError
        A file is not the one of the commit or of the digest; nothing was imported.
    RegistryError
        The registry does not answer, or has no such kernel.
    PackageError
        No version is in the range or has a variant for this system; the text says of each why not.
    KernelImportError
        The import raised or exited.

    Examples
    --------
    >>> from kernelmill import hub
    >>> hub.get_kernel("org/img2gray", version=">=1.1", revision="v1")
    Traceback (most recent call last):
        ...
    kernelmill.errors.PackageError: both a version ('>=1.1') and a revision ('v1') are given; ...
    """
    wanted = Wanted.of(version, revision)
    shelves = Shelves(registry=registry, backend=backend, trust=trust, check_arch=check_arch)
    return shelves.load(repo_id, wanted)


def get_local_kernel(path: str | os.PathLike[str], *, backend: str | None = None) -> ModuleType:
    """Load a kernel from a directory.

    Its files are compared with the digest in its `metadata.json`, where there is one, before
    anything is imported. Kernels that it depends on come from registries.

    Parameters
    ----------
    path
        A project or repository (with `build/`), a directory of variants, or one variant.
    backend
        "cpu" leaves the accelerator out; None is what the system has.

    Returns
    -------
    module
        The kernel, under a module name of its own.

    Raises
    ------
    PackageError
        There is no variant for this system; the text says of each why not.
    IntegrityError
        A file is not the one of the digest.
    KernelImportError
        The import raised or exited.

    Examples
    --------
    >>> import json, pathlib, tempfile
    >>> from kernelmill import hub
    >>> with tempfile.TemporaryDirectory() as home:
    ...     place = pathlib.Path(home, "build", "torch-universal")
    ...     place.mkdir(parents=True)
    ...     _ = (place / "__init__.py").write_text("def twice(x): return 2 * x")
    ...     facts = {"name": "twice", "id": "_twice_1", "version": 1, "license": "MIT",
    ...              "python-depends": [], "backend": {"type": "cpu"}}
    ...     _ = (place / "metadata.json").write_text(json.dumps(facts))
    ...     hub.get_local_kernel(home).twice(21)
    42
    """
    return Shelves(backend=backend).load_local(Path(path))


def get_locked_kernel(
    repo_id: str,
    *,
    lockfile: str | os.PathLike[str] | None = None,
    backend: str | None = None,
    trust: bool | Sequence[str] = False,
    check_arch: bool = True,
) -> ModuleType:
    """Load a kernel as a project's lock names it, from the cache or its registry.

    Parameters
    ----------
    repo_id
        `organization/name`, or with `@N` where several major versions are locked.
    lockfile
        A `kernelmill.lock` or `kernels.lock`. None is the one nearest above the calling code's
        file, or the one that was packed into its distribution.
    backend, trust, check_arch
        As for `get_kernel`.

    Raises
    ------
    LockError
        It is not locked, the lock was edited, or a file is not the locked one.
    PackageError
        As `get_kernel`.

    Examples
    --------
    >>> from kernelmill import hub
    >>> hub.get_locked_kernel("org/img2gray", lockfile="/nowhere/kernelmill.lock")
    Traceback (most recent call last):
        ...
    kernelmill.errors.LockError: there is no /nowhere/kernelmill.lock
    ...
    """
    return _locked(repo_id, lockfile, backend, trust, check_arch=check_arch, offline=None)


def load_kernel(
    repo_id: str,
    *,
    lockfile: str | os.PathLike[str] | None = None,
    backend: str | None = None,
    trust: bool | Sequence[str] = False,
    check_arch: bool = True,
) -> ModuleType:
    """Load a kernel as a project's lock names it, from the cache alone: no request is made.

    Parameters and errors are those of `get_locked_kernel`; `kernelmill sync` fills the cache.

    Examples
    --------
    >>> from kernelmill import hub
    >>> hub.load_kernel("org/img2gray", lockfile="/nowhere/kernelmill.lock")
    Traceback (most recent call last):
        ...
    kernelmill.errors.LockError: there is no /nowhere/kernelmill.lock
    ...
    """
    return _locked(repo_id, lockfile, backend, trust, check_arch=check_arch, offline=True)


def _locked(
    repo_id: str,
    lockfile: str | os.PathLike[str] | None,
    backend: str | None,
    trust: bool | Sequence[str],  # noqa: FBT001 - passed on
    *,
    check_arch: bool,
    offline: bool | None,
) -> ModuleType:
    found = find_lock(caller(), None if lockfile is None else Path(lockfile))
    return load_found(
        found, repo_id, backend=backend, trust=trust, check_arch=check_arch, offline=offline
    )
