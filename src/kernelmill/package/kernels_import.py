"""Lets kernels `import kernels` where that distribution is absent. What they get is `kernels_shim`.

Only code of a kernel is served: to anybody else, the distribution is as absent as before.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType, ModuleType

__all__ = ["NAME", "SUBMODULES", "offer"]

NAME: Final = "kernels"
# Where kernels import from, beside the package itself; all names stand in the one module.
SUBMODULES: Final = (
    "benchmark", "deps", "hf_hub", "importer", "install", "layer", "layer.device", "layer.func",
    "layer.kernelize", "layer.layer", "layer.mode", "load", "variants",
)  # fmt: skip


class _ShimLoader(Loader):
    """Makes a module that holds what the shim holds."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Leave it to the import system."""
        del spec
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Fill it."""
        shim = importlib.import_module("kernelmill.package.kernels_shim")
        names = shim.__all__
        module.__dict__.update({name: getattr(shim, name) for name in names})
        module.__dict__["__all__"] = list(names)
        module.__dict__["__doc__"] = shim.__doc__


class _ShimFinder(MetaPathFinder):
    """Answers for `kernels` at the end of the path, and to kernels alone."""

    def __init__(self, is_kernel: Callable[[str], bool]) -> None:
        self.is_kernel = is_kernel

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        del path, target
        top, _, rest = fullname.partition(".")
        if top != NAME or (rest and rest not in SUBMODULES) or not self._asked_by_a_kernel():
            return None
        packages = {name.rpartition(".")[0] for name in SUBMODULES}
        return ModuleSpec(fullname, _ShimLoader(), is_package=not rest or rest in packages)

    def _asked_by_a_kernel(self) -> bool:
        frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - who imports is nowhere else
        while frame is not None:
            name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if name not in {"importlib", "_frozen_importlib", "_frozen_importlib_external"} and (
                frame.f_globals.get("__name__") != __name__
            ):
                return self.is_kernel(name)
            frame = frame.f_back
        return False


def offer(is_kernel: Callable[[str], bool]) -> None:
    """Serve kernels from now on; a second call changes nothing.

    Parameters
    ----------
    is_kernel
        Whether a top-level module is a kernel that is loaded or being loaded.
    """
    if not any(isinstance(finder, _ShimFinder) for finder in sys.meta_path):
        sys.meta_path.append(_ShimFinder(is_kernel))
