"""A plugin of pytest that makes a built kernel importable under its own name. Runs no tests.

`kernelmill test` gives it the variant; `pytest -p kernelmill.package.pytest_kernel
--kernel-variant build/NAME` does the same without it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from kernelmill.errors import KernelImportError, PackageError
from kernelmill.package.load import load, read_candidate

__all__ = ["import_as_itself", "pytest_addoption", "pytest_configure"]


def import_as_itself(variant: Path) -> Any:  # Any: a module of the user's
    """Load a variant, verified, and give it the name that its own tests import."""
    candidate = read_candidate(variant)
    module = load(candidate)
    sys.modules[candidate.metadata.python_name] = module
    return module


def pytest_addoption(parser: Any) -> None:  # Any: pytest, which is not imported here
    """Add the option that names the variant."""
    parser.addoption("--kernel-variant", default="", help="The built variant that tests import.")


def pytest_configure(config: Any) -> None:  # Any: as above
    """Load the variant before tests are collected: they import it."""
    variant = config.getoption("--kernel-variant")
    if not variant:
        return
    try:
        import_as_itself(Path(variant))
    except KernelImportError:  # the traceback leads into the user's own code
        raise
    except PackageError as error:
        from pytest import UsageError  # noqa: PLC0415, PT013 - this module may be imported without

        raise UsageError(str(error)) from None
