"""Compilers that only seem to be such, and what else the tests of the toolchain share."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import signal
import subprocess
import sys
import threading
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


def wait_for(condition, seconds=600.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def numbers(*paths):
    """Return the process numbers that stand in files; none while one of them is not written."""
    texts = [path.read_text() if path.exists() else "" for path in paths]
    return [int(text) for text in texts] if all(text.endswith("\n") for text in texts) else []


def is_inside(function):
    """Say whether the main thread is in a function of that name."""
    frame = sys._current_frames()[threading.main_thread().ident]
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


@contextlib.contextmanager
def interrupted_when(condition, *, inside):
    """Interrupt the main thread, as Ctrl-C does, inside a function once `condition()` holds."""

    def interrupt():
        wait_for(lambda: condition() and is_inside(inside))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        yield
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, before)


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
