"""Loads a variant in a process of its own and provokes errors there. Reads no files of it.

What a stranger's library does, crash included, stays in that process; `check_child.py` tells what
it is about to do, a line at a time, so that the last line names what it died of.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill.config import child_environment
from kernelmill.package.check_subject import Finding
from kernelmill.package.variant import decide

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelmill.package.check_subject import Subject
    from kernelmill.package.system import System

__all__ = ["run_findings"]

_CHILD: Final = Path(__file__).with_name("check_child.py")
_SECONDS: Final = 300.0
# What the child was doing, in words.
_STEPS: Final = {
    "start": "starting Python",
    "framework": "importing its framework",
    "load": "loading the library",
    "import": "importing the kernel",
    "call": "a wrong call of",
}


def run_findings(subject: Subject, system: System) -> list[Finding]:
    """Return what goes wrong when the variant is loaded and called wrongly."""
    if subject.variant is None or subject.metadata is None:
        return []
    (decision,) = decide([subject.variant], system)
    if decision.reason is not None:
        message = f"it was not loaded: {decision.reason}"
        return [Finding("loading", "note", subject.library_name, message)]
    lines, returncode, errors = _run(subject)
    return [*_told(subject, lines), *_ended(subject, lines, returncode, errors)]


def _run(subject: Subject) -> tuple[list[dict[str, Any]], int | None, str]:  # Any: JSON
    """Return what the child said, its exit status (None: it ran too long), its last words."""
    assert subject.metadata is not None
    assert subject.variant is not None
    kind = "torch" if subject.torch else subject.variant.framework.name
    names = [s.name for s in subject.library.exports()] if subject.library else []
    functions = [n.removeprefix("__tvm_ffi_") for n in names if n.startswith("__tvm_ffi_")]
    asked = {
        "path": str(subject.path.resolve()),
        "id": subject.metadata.id,
        "kind": kind,
        "library": str(subject.library_path.resolve()) if subject.library_path else "",
        "functions": [f for f in functions if not f.startswith("_")],
    }
    command = [sys.executable, "-B", "-P", str(_CHILD), json.dumps(asked)]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
            env=child_environment(),
        )
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        return _lines(said.decode(errors="replace")), None, ""
    return _lines(done.stdout), done.returncode, done.stderr


def _lines(text: str) -> list[dict[str, Any]]:  # Any: JSON
    """Return the child's own lines; a kernel may print others."""
    found = []
    for line in text.split("\n"):  # `splitlines` takes the separator for an end of line
        if line.startswith("\x1e"):
            try:
                found.append(json.loads(line[1:]))
            except json.JSONDecodeError:  # cut off by a crash
                continue
    return found


def _told(subject: Subject, lines: list[dict[str, Any]]) -> Iterator[Finding]:
    for line in lines:
        if line["what"] == "failed":
            yield _failure(subject, line["step"], line["error"])
        elif line["what"] == "foreign":
            yield Finding(
                "registration",
                "error",
                subject.library_name,
                f"loading it registers {', '.join(line['names'])}, outside of its own namespace",
                "a second build or version of the kernel in one process fails",
                "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ...) takes the namespace of the build",
            )
        elif line["what"] == "accepted":
            yield Finding(
                "errors",
                "note",
                subject.library_name,
                f"{line['name']} took arguments that make no sense without an error",
                "",
                "check shapes and types in the binding",
            )


def _failure(subject: Subject, step: str, error: str) -> Finding:
    if step == "framework":
        return Finding("loading", "note", "", f"it was not loaded: {error}")
    breaks = {
        "load": "loading fails for everybody, and torch's message does not name the symbol",
        "import": "`get_kernel` fails for everybody with a system like this one",
    }
    file = subject.library_name if step == "load" else "__init__.py"
    message = f"{_STEPS[step]} failed: {error}"
    return Finding("loading", "error", file, message, breaks[step])


def _ended(
    subject: Subject, lines: list[dict[str, Any]], returncode: int | None, errors: str
) -> Iterator[Finding]:
    if returncode == 0:
        return
    last = next((line for line in reversed(lines) if line["what"] in ("begin", "call")), None)
    called = last is not None and last["what"] == "call"
    step = "start" if last is None else "call" if called else last["step"]
    doing = _STEPS[step] + (f" {last['name']}" if last is not None and called else "")
    words = " ".join(errors.split())[-200:]
    said = f": {words}" if words else ""
    if returncode is None:
        message, how = f"{doing} did not end within {_SECONDS:g} s", "hangs"
    else:
        message, how = (
            f"the process {_death(returncode)} in {doing}{said}",
            "dies without a traceback",
        )
    yield Finding(
        "errors" if called else "loading",
        "error",
        subject.library_name,
        message,
        f"a program that {'makes a mistake' if called else 'loads it'} {how}",
        "throw in the binding; a C++ runtime of its own (zig, -static-libstdc++) cannot"
        if called
        else "",
    )


def _death(returncode: int) -> str:
    if returncode < 0:
        return f"was ended by {signal.Signals(-returncode).name}"
    return f"ended itself with status {returncode}"
