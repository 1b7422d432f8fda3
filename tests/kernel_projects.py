"""Kernel projects for tests: what `kernelmill new` writes, and the example with three bindings."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from kernelmill.package.scaffold import plan, write

NAME = "img2gray"
MACHINE = "x86_64-linux"
EXAMPLE = Path(__file__).parents[1] / "examples" / "kernels" / NAME


def scaffolded(root: Path, framework: str, backends=("cpu", "cuda")) -> Path:
    """Write what `kernelmill new` writes."""
    write(plan(NAME, framework=framework, backends=backends), root)
    return root


def three_bindings(root: Path, torch=("2.13",), classic_backends=("cpu",)) -> Path:
    """Copy the example with a stable, a classic and a tvm-ffi binding; narrow what it builds."""
    skipped = shutil.ignore_patterns("build", "toolchain.lock", "dist")
    shutil.copytree(EXAMPLE, root, ignore=skipped)
    _replace(root / "pyproject.toml", r"^torch = .*$", f"torch = {json.dumps(torch)}")
    backends = json.dumps(classic_backends)
    _replace(root / "build.classic.toml", r"^backends = .*$", f"backends = {backends}")
    if "cuda" not in classic_backends:
        _replace(root / "build.classic.toml", r"^\[kernel\.\w+_cuda\]\n(?:(?!\[).*\n?)*", "")
    return root


def _replace(path: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, text, path.read_text(), flags=re.MULTILINE)
    assert count == 1, path
    path.write_text(changed)


def kernelmill(*words, cwd=None, check=0, **environment):
    """Run the command line in a process of its own; its status must be `check`."""
    import os

    done = subprocess.run(
        [sys.executable, "-m", "kernelmill", *map(str, words)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == check, done.stdout + done.stderr
    return done


def python(code: str, *arguments, **environment):
    """Run Python in a process of its own, without writing bytecode; return what it printed."""
    import os

    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *map(str, arguments)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tree(directory: Path) -> dict[str, bytes]:
    """Return the files below a directory by their names."""
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
