"""The kernels of examples/kernels_in_python, as its runner sees them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parents[1] / "examples/kernels_in_python"


def _import(file: str, name: str):
    spec = importlib.util.spec_from_file_location(name, HERE / file)
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


cases = _import("cases.py", "cases")  # the name by which the runner imports it
run = _import("run.py", "run_kernels")  # the benchmarks have a module of the file's name
FORMS = [
    (name, form)
    for name, case in cases.CASES.items()
    for form, path in (("cuda", case.source), ("python", case.module))
    if path.exists()
]
