"""Kernels from registries, locks and directories, as modules: the door to `kernelmill.package`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernelmill.package.choice import local_variant
from kernelmill.package.load import get_kernel_dep, load, loaded, read_candidate

if TYPE_CHECKING:
    import os
    from types import ModuleType

__all__ = ["get_kernel_dep", "get_local_kernel", "loaded"]


def get_local_kernel(path: str | os.PathLike[str], *, backend: str | None = None) -> ModuleType:
    """Load a kernel from a directory.

    Its files are compared with the digest in its `metadata.json`, where there is one, before
    anything is imported.

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
    return load(read_candidate(local_variant(Path(path), backend=backend)))
