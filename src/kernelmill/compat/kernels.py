"""The API of Hugging Face's `kernels` 0.17.2: `import kernelmill.compat.kernels as kernels`.

What stands behind it is `kernelmill.package.kernels_shim`.
"""

from __future__ import annotations

from kernelmill.package.kernels_shim import *  # noqa: F403 - the whole API, as its list says
from kernelmill.package.kernels_shim import __all__ as __all__  # noqa: PLC0414 - the same list
from kernelmill.package.kernels_shim import __version__ as __version__  # noqa: PLC0414
