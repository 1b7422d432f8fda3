"""`kernelmill check`: what in a built variant breaks, and for whom. Builds and mends nothing.

Rules are functions from a subject to findings, kept in the tables of `check_layout.py`,
`check_library.py`, `check_torch.py`, `check_python.py`; `check_run.py` loads the variant in a
process of its own. All of it works on a directory that somebody else built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelmill.errors import PackageError
from kernelmill.package.check_layout import LAYOUT_RULES
from kernelmill.package.check_library import LIBRARY_RULES, facts_of_library
from kernelmill.package.check_python import PYTHON_RULES
from kernelmill.package.check_run import run_findings
from kernelmill.package.check_subject import Finding, open_subject
from kernelmill.package.check_torch import TORCH_RULES
from kernelmill.package.clean import FOLDER as CMAKE_FOLDER
from kernelmill.package.metadata import BACKENDS
from kernelmill.package.variant import Variant

if TYPE_CHECKING:
    from pathlib import Path

    from kernelmill.package.system import System

__all__ = ["Finding", "Report", "check_variant", "find_variants"]

RULES = (*LAYOUT_RULES, *LIBRARY_RULES, *TORCH_RULES, *PYTHON_RULES)
_ORDER = ("error", "warning", "note")


@dataclass(frozen=True, slots=True)
class Report:
    """What was found in one variant; `facts` says what was read where nothing is wrong."""

    variant: str
    path: Path
    findings: tuple[Finding, ...]
    facts: dict[str, str]

    @property
    def passed(self) -> bool:
        """Whether nothing was found that breaks for somebody."""
        return not any(finding.level == "error" for finding in self.findings)


def find_variants(path: Path) -> tuple[Path, ...]:
    """Return the variants that a path stands for: one itself, those in it, those in its `build`.

    Raises
    ------
    PackageError
        There are none.
    """
    if _is_variant(path):
        return (path,)
    for place in (path / "build", path):
        if place.is_dir():
            found = tuple(sorted(entry for entry in place.iterdir() if _is_variant(entry)))
            if found:
                return found
    raise PackageError(
        f"there are no built variants in {path.absolute()}",
        hint="`kernelmill build` makes them in build/; a variant's own directory can be named too",
    )


def _is_variant(path: Path) -> bool:
    """Tell a variant by its metadata, else by its name; `torch-ext` is none of a known backend."""
    if not path.is_dir() or path.name == CMAKE_FOLDER:
        return False
    if (path / "metadata.json").is_file():
        return True
    try:
        variant = Variant.parse(path.resolve().name)
    except PackageError:
        return False
    return not variant.noarch or variant.backend.name in (*BACKENDS, "npu", "universal")


def check_variant(
    path: Path, system: System, *, manylinux: str = "2_28", run: bool = True
) -> Report:
    """Check one variant.

    Parameters
    ----------
    path
        Its directory.
    system
        What this machine can load; a variant for another one is read, but not loaded.
    manylinux
        The oldest systems that it has to load on, as `manylinux_2_28` has it.
    run
        Whether code of the variant may run, in a process of its own.
    """
    subject = open_subject(path, manylinux)
    findings = [finding for rule in RULES for finding in rule(subject)]
    if run:
        findings += run_findings(subject, system)
    findings.sort(key=lambda finding: _ORDER.index(finding.level))
    return Report(path.name, path, tuple(findings), facts_of_library(subject))
