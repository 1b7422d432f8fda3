"""Every example in the docstrings of the package runs."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import warnings

import pytest

import kernelmill

# Running these is running the command line.
NOT_IMPORTED = {"kernelmill.__main__"}
MODULES = sorted(
    {m.name for m in pkgutil.walk_packages(kernelmill.__path__, "kernelmill.")} - NOT_IMPORTED
)


def test_modules_are_found() -> None:
    assert {"kernelmill.dtypes", "kernelmill.algorithms.reduce"} < set(MODULES)


@pytest.mark.parametrize("name", ["kernelmill", *MODULES])
def test_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        failed, _ = doctest.testmod(
            module, extraglobs=dict(vars(module)), optionflags=doctest.ELLIPSIS
        )
    assert not failed, capsys.readouterr().out
