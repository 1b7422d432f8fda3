"""Kernel projects for tests: one with three bindings over the same sources, made from the scaffold."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from kernelmill.package.scaffold import plan, write

NAME = "img2gray"
MACHINE = "x86_64-linux"


def scaffolded(root: Path, framework: str, backends=("cpu", "cuda")) -> Path:
    """Write what `kernelmill new` writes."""
    write(plan(NAME, framework=framework, backends=backends), root)
    return root


def three_bindings(root: Path, torch=("2.13",), classic_backends=("cpu",)) -> Path:
    """Write a project with a stable, a classic and a tvm-ffi binding, one manifest each."""
    scaffolded(root, "torch")
    with tempfile.TemporaryDirectory() as place:
        classic = scaffolded(Path(place) / "classic", "classic", classic_backends)
        text = (classic / "build.toml").read_text().replace("/binding.cpp", "/classic.cpp")
        (root / "build.classic.toml").write_text(text)
        (root / "torch-ext/classic.cpp").write_text((classic / "torch-ext/binding.cpp").read_text())
        tvm = scaffolded(Path(place) / "tvm", "tvm-ffi")
        (root / "build.tvm-ffi.toml").write_text((tvm / "build.toml").read_text())
        (tvm / "tvm-ffi-ext").rename(root / "tvm-ffi-ext")
    manifests = '["build.toml", "build.classic.toml", "build.tvm-ffi.toml"]'
    settings = f'version = "1.0.0"\nmanifests = {manifests}\ntorch = {json.dumps(torch)}\n'
    path = root / "pyproject.toml"
    path.write_text(path.read_text().replace('version = "1.0.0"\n', settings))
    return root


def kernelmill(*words, cwd=None, check=0, **environment):
    """Run the command line in a process of its own; its status must be `check`."""
    import os

    done = subprocess.run(
        [sys.executable, "-m", "kernelmill", *map(str, words)],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
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
        timeout=300,
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
