"""Compilers that only seem to be such, and what else the tests of the toolchain share."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import time
from pathlib import Path

from kernelmill.toolchain import HostCompiler, host

EXPORT = 'extern "C" __attribute__((visibility("default")))'
TWO = f"{EXPORT} int two() {{ return 2; }}\n"
BANNER = 'echo "Target: x86_64-linux-gnu"; echo "gcc version 99.1.0 (made up)"'
ZIG = importlib.util.find_spec("ziglang")
INSTALLED = {
    "g++": shutil.which("g++") is not None,
    "clang++": shutil.which("clang++") is not None,
    "zig": ZIG is not None,
}


def script(path, body, *, answers=True):
    """Write a stand-in compiler that answers questions about itself and then does `body`."""
    asked = f'case "$*" in *-v) {BANNER}; exit 0;; -print-prog-name=*) echo cc1plus; exit 0;; esac'
    path.write_text(f"#!/bin/sh\n{asked if answers else ''}\n{body}\n")
    path.chmod(0o755)
    return path


def stand_in(tmp_path, body):
    return HostCompiler("gcc", (str(script(tmp_path / "fake++", body)),), "99.1.0", "t", "i")


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


LANES = f"""
using i64 = long long;
{EXPORT} void sums(const float *__restrict x, float *out, i64 n) {{
    float lane[64] = {{}};
    for (i64 i = 0; i + 64 <= n; i += 64)
        for (int j = 0; j < 64; j++) lane[j] = lane[j] + x[i + j];
    for (int s = 32; s > 0; s /= 2)
        for (int j = 0; j < s; j++) lane[j] = lane[j] + lane[j + s];
    *out = lane[0];
}}
{EXPORT} void fmas(const double *a, const double *b, const double *c, double *out, i64 n) {{
    for (i64 i = 0; i < n; i++) out[i] = __builtin_fma(a[i], b[i], c[i]);
}}
{EXPORT} void fmafs(const float *a, const float *b, const float *c, float *out, i64 n) {{
    for (i64 i = 0; i < n; i++) out[i] = __builtin_fmaf(a[i], b[i], c[i]);
}}
{EXPORT} void axpy(const float *a, const float *b, const float *c, float *out, i64 n) {{
    for (i64 i = 0; i < n; i++) out[i] = a[i] * b[i] + c[i];
}}
"""


def only(monkeypatch, directory):
    """Leave `directory` alone on PATH, and no ziglang."""
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setattr(host, "_WHEEL", "ziglang_that_is_not_there")


def forbid_processes(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)


def memo_of(cache_dir):
    (path,) = (cache_dir / "toolchain").glob("*.json")
    return path
