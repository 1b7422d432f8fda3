"""Runs the kernels of this directory in both forms on a device, each against NumPy.

python examples/kernels_in_python/run.py [NAME ...] [--device emulator] [--form cuda|python|both]
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

import cases
import numpy as np

import kernelmill as km
from kernelmill.runtime.devices import available_devices

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cases import Case, Values

FORMS = ("cuda", "python")


def best_device() -> str:
    """Return the first GPU where there is one, else the emulator."""
    return "cuda:0" if "cuda:0" in available_devices() else "emulator"


def put(values: Values, device: str) -> Values:
    """Return the arguments with copies of their arrays on a device."""
    if device == "emulator":  # NumPy arrays are its memory
        return {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in values.items()}
    number = km.Device(device).gpu.number
    return {
        name: km.to_device(value, device=number) if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


def cuda_form(case: Case, values: Values, arch: str | None = None) -> Callable[[object], None]:
    """Return what launches the CUDA C++ form on a stream; the arrays are on the device."""
    launch = case.launch(**values)
    program = km.Program(case.source.read_text(), name=case.source.name)
    kernel = program.compile("cubin", arch=arch).get_kernel(case.name)
    config = km.LaunchConfig(launch.grid, launch.block, shmem_size=launch.shmem_size)
    return lambda stream: km.launch(stream, config, kernel, *launch.arguments)


def python_form(case: Case, values: Values) -> Callable[[object], None]:
    """Return what launches the Python form on a stream; the arrays are on the device."""
    run = module_of(case).run
    return lambda stream: run(**values, stream=stream)


def module_of(case: Case) -> Any:
    """Import the Python form."""
    name = f"kernels_in_python_{case.name}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, case.module)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


def check(case: Case, form: str, device: str, size: tuple[int, ...] | None = None) -> float:
    """Run one form of a case; return the share of elements that are wrong."""
    values = cases.values_of(case, size)
    there = put(values, device)
    make = cuda_form if form == "cuda" else python_form
    with km.Device(device):
        make(case, there)(None)
    found = there[case.output]
    return cases.difference(case, found if device == "emulator" else found.numpy(), values)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return how many results are wrong."""
    parser = argparse.ArgumentParser(description="Run kernels against NumPy.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(cases.CASES))
    parser.add_argument("--device", default=best_device(), help="cuda:0, emulator")
    parser.add_argument("--form", choices=(*FORMS, "both"), default="both")
    asked = parser.parse_args(arguments)
    unknown = sorted(set(asked.names) - set(cases.CASES))
    if unknown:
        parser.error(f"there is no kernel {unknown[0]!r}; kernels: {', '.join(cases.CASES)}")
    failed = 0
    for name in asked.names or cases.CASES:
        for form in FORMS if asked.form == "both" else (asked.form,):
            case = cases.CASES[name]
            wrong = check(case, form, asked.device)
            right = wrong <= case.tolerance.share
            failed += not right
            print(f"{name:<16} {form:<7} {'as NumPy' if right else f'{wrong:.1%} WRONG'}")
    return failed


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
