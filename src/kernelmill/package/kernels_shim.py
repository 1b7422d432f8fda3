"""The public API of `kernels` 0.17.2, on our own loader. `kernels_import` hands it to kernels.

Names, parameters and kinds of errors are those that `kernels` documents; a test compares them with
its wheel. Versions may be ranges here, too. Kernels are verified before they are imported, and no
telemetry is sent, so `user_agent` has no effect.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kernelmill.config import get_config
from kernelmill.errors import NoVariantError, PackageError
from kernelmill.package import load as loading
from kernelmill.package.choice import choose
from kernelmill.package.kernels_types import (
    Benchmark,
    LoadedKernel,
    Metadata,
    RepoInfo,
    VariantAccepted,
    VariantName,
    VariantRejected,
)
from kernelmill.package.layer_kinds import (
    CUDAProperties,
    Device,
    KernelizeFallback,
    Mode,
    ROCMProperties,
)
from kernelmill.package.layer_repositories import (
    FuncRepository,
    LayerRepository,
    LocalFuncRepository,
    LocalLayerRepository,
    LockedFuncRepository,
    LockedLayerRepository,
    use_kernel_func_from_hub,
)
from kernelmill.package.layers import (
    kernelize,
    register_kernel_mapping,
    replace_kernel_forward_from_hub,
    use_kernel_forward_from_hub,
    use_kernel_mapping,
    use_kernelized_func,
)
from kernelmill.package.lock_find import caller, find_lock
from kernelmill.package.lock_load import load_found
from kernelmill.package.metadata import FILE, read_metadata
from kernelmill.package.metadata import Metadata as _Facts
from kernelmill.package.obtain import Located, Shelves, local_overrides, refuse_circle
from kernelmill.package.requirements import check_arch as _check_arch
from kernelmill.package.system import here
from kernelmill.package.versions import needs_of, newest, published, variant_files
from kernelmill.package.wanted import Wanted

if TYPE_CHECKING:
    from types import ModuleType

__all__ = [
    "Benchmark",
    "CUDAProperties",
    "Device",
    "FuncRepository",
    "KernelizeFallback",
    "LayerRepository",
    "LoadedKernel",
    "LocalFuncRepository",
    "LocalLayerRepository",
    "LockedFuncRepository",
    "LockedLayerRepository",
    "Metadata",
    "Mode",
    "ROCMProperties",
    "RepoInfo",
    "VariantAccepted",
    "VariantRejected",
    "__version__",
    "get_kernel",
    "get_kernel_dep",
    "get_kernel_variants",
    "get_loaded_kernels",
    "get_local_kernel",
    "get_locked_kernel",
    "has_kernel",
    "install_kernel",
    "kernelize",
    "load_kernel",
    "register_kernel_mapping",
    "replace_kernel_forward_from_hub",
    "use_kernel_forward_from_hub",
    "use_kernel_func_from_hub",
    "use_kernel_mapping",
    "use_kernelized_func",
]

__version__: Final = "0.17.2"  # whose API this is; kernels compare it with what they need


# ----------------------------------------------------------------------------- loading


def get_kernel(
    repo_id: str,
    *,
    revision: str | None = None,
    version: int | str | None = None,
    backend: str | None = None,
    user_agent: str | dict[str, str] | None = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
) -> ModuleType:
    """Load a published kernel; see `kernelmill.hub.get_kernel`.

    Parameters
    ----------
    repo_id
        `organization/name`.
    revision, version
        One of them: a branch, tag or commit; an integer or a range.
    backend
        "cpu", or what the system has.
    user_agent
        Without effect.
    trust_remote_code
        Whether an unknown publisher is trusted, or which repositories are.
    check_arch
        Whether code for CUDA must have been built for the current device.
    """
    del user_agent
    shelves = _shelves(backend, trust_remote_code, check_arch=check_arch)
    return shelves.load(repo_id, Wanted.of(version, revision))


def get_local_kernel(
    repo_path: Path,
    *,
    backend: str | None = None,
    trust_remote_code: bool | list[str] = False,
    user_agent: str | dict[str, str] | None = None,
) -> ModuleType:
    """Load a kernel of a directory; see `kernelmill.hub.get_local_kernel`.

    Parameters
    ----------
    repo_path
        The directory.
    backend, trust_remote_code, user_agent
        As for `get_kernel`; the trust is for what it depends on.
    """
    del user_agent
    return _shelves(backend, trust_remote_code).load_local(Path(repo_path))


def load_kernel(
    repo_id: str, *, lockfile: Path | None = None, backend: str | None = None
) -> ModuleType:
    """Load a locked kernel from the cache; no request is made.

    Parameters
    ----------
    repo_id
        `organization/name`.
    lockfile
        A lock of either form; None for that of the calling code.
    backend
        As for `get_kernel`.
    """
    found = find_lock(caller(), lockfile)
    return load_found(found, repo_id, backend=backend, offline=True)


def get_locked_kernel(
    repo_id: str,
    *,
    lockfile: Path | None = None,
    trust_remote_code: bool | list[str] = False,
    user_agent: str | dict[str, str] | None = None,
) -> ModuleType:
    """Load a locked kernel, downloaded where need be.

    Parameters
    ----------
    repo_id, lockfile
        As for `load_kernel`.
    trust_remote_code, user_agent
        As for `get_kernel`.
    """
    del user_agent
    return load_found(find_lock(caller(), lockfile), repo_id, trust=trust_remote_code)


def install_kernel(
    repo_id: str,
    *,
    revision: str | None = None,
    version: int | str | None = None,
    backend: str | None = None,
    local_files_only: bool = False,
    user_agent: str | dict[str, str] | None = None,
    trust_remote_code: bool | list[str] = False,
) -> Path:
    """Download a kernel and what it depends on into the cache; return its variant's directory.

    Parameters
    ----------
    repo_id, revision, version, backend, user_agent, trust_remote_code
        As for `get_kernel`.
    local_files_only
        Whether no registry is asked.
    """
    del user_agent
    shelves = _shelves(backend, trust_remote_code)
    shelves.offline = shelves.offline or local_files_only
    return _install(shelves, repo_id, Wanted.of(version, revision), ())


def _install(shelves: Shelves, repo_id: str, wanted: Wanted, chain: tuple[str, ...]) -> Path:
    located = shelves.locate(repo_id, wanted)
    directory = shelves.download(located)
    for need in needs_of([read_metadata(directory)], place=str(directory / FILE)).kernels:
        refuse_circle(need.repo_id, (*chain, repo_id))
        _install(shelves, need.repo_id, need.wanted, (*chain, repo_id))
    return directory


def has_kernel(
    repo_id: str,
    *,
    revision: str | None = None,
    version: int | str | None = None,
    backend: str | None = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
) -> bool:
    """Whether a kernel, and all that it depends on, has a variant for this system.

    Parameters
    ----------
    repo_id, revision, version, backend, trust_remote_code, check_arch
        As for `get_kernel`.
    """
    shelves = _shelves(backend, trust_remote_code, check_arch=check_arch)
    try:
        _look(shelves, repo_id, Wanted.of(version, revision), ())
    except NoVariantError:
        return False
    return True


def _look(shelves: Shelves, repo_id: str, wanted: Wanted, chain: tuple[str, ...]) -> None:
    override = local_overrides(get_config().local_kernels).get(repo_id)
    if override is not None:
        return
    located = shelves.locate(repo_id, wanted)
    metadata = _metadata(shelves, located)
    if shelves.check_arch:
        try:
            _check_arch(metadata)
        except PackageError as error:
            raise NoVariantError(error.message, hint=error.hint) from error
    for need in needs_of([metadata], place=f"{repo_id}: {FILE}").kernels:
        refuse_circle(need.repo_id, (*chain, repo_id))
        _look(shelves, need.repo_id, need.wanted, (*chain, repo_id))


def _metadata(shelves: Shelves, located: Located) -> _Facts:
    """Return a variant's metadata, without downloading the rest."""
    if shelves.offline:
        home = shelves.cache.snapshot(located.repo_id, located.commit)
        return read_metadata(home / "build" / located.variant)
    path = f"build/{located.variant}/{FILE}"
    text = shelves.open(located.settings).read(located.repo_id, located.commit, path)
    return _Facts.parse(text, place=f"{located.repo_id}: {path}")


def _shelves(
    backend: str | None,
    trust_remote_code: bool | list[str],  # noqa: FBT001 - as in `kernels`
    *,
    check_arch: bool = True,
) -> Shelves:
    return Shelves(backend=backend, trust=trust_remote_code, check_arch=check_arch)


# ----------------------------------------------------------------------------- what there is


def get_kernel_variants(
    repo_id: str,
    *,
    revision: str | None = None,
    version: int | str | None = None,
    backend: str | None = None,
) -> list[VariantAccepted | VariantRejected]:
    """Return what this system makes of each variant of a version, the preferred one first.

    Parameters
    ----------
    repo_id, revision, version, backend
        As for `get_kernel`.
    """
    shelves = _shelves(backend, trust_remote_code=True)
    settings = shelves.settings(repo_id)
    commit = _commit(shelves, repo_id, Wanted.of(version, revision))
    listing = shelves.listing(Located(repo_id, commit, "", settings))
    choice = choose(variant_files(listing), here(backend))
    return [
        VariantAccepted(VariantName(str(d.variant)))
        if d.reason is None
        else VariantRejected(VariantName(str(d.variant)), d.reason)
        for d in choice.decisions
    ]


def _commit(shelves: Shelves, repo_id: str, wanted: Wanted) -> str:
    if shelves.offline:
        return shelves.locate(repo_id, wanted).commit
    registry = shelves.open(shelves.settings(repo_id))
    if wanted.revision:
        return registry.commit(repo_id, wanted.revision)
    for one in published(registry, repo_id, refs=True):
        if wanted.integer == one.version.major or (one.exact and wanted.admits(one.version)):
            return one.commit
    return newest(registry, repo_id, wanted).published.commit  # says what there is


def get_loaded_kernels() -> list[LoadedKernel]:
    """Return what this process has loaded, in that order."""
    return [
        LoadedKernel(
            Metadata.of(one.variant.metadata),
            one.module,
            None
            if one.variant.origin is None
            else RepoInfo(one.variant.origin.repo_id, one.variant.origin.commit),
        )
        for one in loading.loaded()
    ]


def get_kernel_dep(repo_id: str) -> ModuleType:
    """Return a kernel that the one being imported depends on.

    Parameters
    ----------
    repo_id
        As it stands under `kernel-depends`.

    Raises
    ------
    RuntimeError
        No kernel is being imported, or it does not declare that dependency.
    """
    try:
        return loading.get_kernel_dep(repo_id)
    except PackageError as error:
        raise RuntimeError(str(error)) from error
