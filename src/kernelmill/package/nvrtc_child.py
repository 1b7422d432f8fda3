"""A program of its own: compile one CUDA file with a given NVRTC. It knows nothing else.

`python nvrtc_child.py LIBRARY SOURCE ARCH OUTPUT OPTION...`, where ARCH is `sm_90` for a cubin or
`compute_90` for PTX; the log goes to stdout, the status is 0 or 1. It imports nothing of
kernelmill, so that it starts in 20 ms, and can be killed when it hangs.
"""

import ctypes
import sys
from pathlib import Path

# Said of every old chip; that it is compiled for was decided elsewhere.
_KNOWN = "nvrtc: warning: Architectures prior to "


def main(library: str, source: str, arch: str, output: str, *options: str) -> int:
    """Compile, write what was made, print the log."""
    nvrtc = ctypes.CDLL(library)
    program = ctypes.c_void_p()
    text, name = Path(source).read_bytes(), source.encode()
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, name, 0, None, None)
    words = [f"--gpu-architecture={arch}".encode(), *(option.encode() for option in options)]
    failed = nvrtc.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
    log = _read(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
    lines = log.rstrip(b"\0").decode("utf-8", "replace").splitlines(keepends=True)
    sys.stdout.write("".join(line for line in lines if not line.startswith(_KNOWN)))
    if failed:
        return 1
    kind = "CUBIN" if arch.startswith("sm_") else "PTX"
    size_of, read = getattr(nvrtc, f"nvrtcGet{kind}Size"), getattr(nvrtc, f"nvrtcGet{kind}")
    Path(output).write_bytes(_read(size_of, read, program))
    return 0


def _read(size_of, read, program) -> bytes:  # type: ignore[no-untyped-def]  # noqa: ANN001
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    read(program, buffer)
    return buffer.raw


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
