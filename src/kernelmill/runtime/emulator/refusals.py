"""What the emulator has no form for, by name: words of CUDA, headers of its libraries, functions.

Where a text says one of them, the refusal names it and its line. Instructions are in `ptx.py`.
"""

from __future__ import annotations

import re
from typing import Final

from kernelmill.errors import CompileError, NotImplementedHere

__all__ = ["REFUSED_WORDS", "refusal", "refusal_at", "unknown_ptx"]

# Names that mean something a host cannot do, and what that is.
REFUSED_WORDS: Final = {
    "wmma": "tensor cores",
    "cudaTextureObject_t": "textures",
    "cudaSurfaceObject_t": "surfaces",
    "tex1D": "textures",
    "tex1Dfetch": "textures",
    "tex2D": "textures",
    "tex3D": "textures",
    "CUtensorMap": "tensor maps",
    "cudaGraphLaunch": "graphs",
    "cudaStreamBeginCapture": "graphs",
}
# Names that a program may have for things of its own: refused where the compiler misses them.
_MISSED_WORDS: Final = {"texture": "textures", "surface": "surfaces", "tex2DLod": "textures"}
# How the names of headers begin, and whose they are.
_LIBRARIES: Final = (
    (re.compile(r"thrust/"), "Thrust"),
    (re.compile(r"cub/"), "CUB"),
    (re.compile(r"cuda/"), "libcu++"),
    (re.compile(r"cooperative_groups/"), "such groups"),
    (re.compile(r"cutlass/|cute/"), "CUTLASS"),
    (re.compile(r"cublas"), "cuBLAS"),
    (re.compile(r"cufft"), "cuFFT"),
    (re.compile(r"curand"), "cuRAND"),
    (re.compile(r"cusparse"), "cuSPARSE"),
    (re.compile(r"cusolver"), "cuSOLVER"),
    (re.compile(r"cudnn"), "cuDNN"),
    (re.compile(r"npp"), "NPP"),
    (re.compile(r"nccl"), "NCCL"),
    (re.compile(r"nvrtc|nvJitLink"), "run-time compiler"),
    (re.compile(r"nvml"), "NVML"),
    (re.compile(r"nvtx3/|nvToolsExt"), "NVTX"),
    (re.compile(r"cuda_\w*interop|cuda\w*GL|GL/|GLFW/|vulkan/"), "graphics"),
    (re.compile(r"mma\.h"), "tensor cores"),
    (re.compile(r"cuda_fp[468]|cuda_tf32"), "numbers of 8 bits and less"),
)
_NO_FILE: Final = re.compile(
    r"^(?P<file>[^:\n]+):(?P<line>\d+):\d+: fatal error: '?(?P<name>[\w./-]+?)'?(?::| file not) ",
    re.MULTILINE,
)
# A header that is here to say that it is not.
_REFUSING_FILE: Final = re.compile(
    r"^In file included from (?P<file>[^:\n]+):(?P<line>\d+)(?::\d+)?[:,]\n(?:.*\n)*?"
    r'.*error: #?(?:error )?"the emulator has no (?P<what>.*) \((?P<name>[\w./]+)\)"',
    re.MULTILINE,
)
# As g++ and clang++ say that a name of CUDA is not there.
_UNKNOWN: Final = r"(?:use of undeclared identifier |unknown type name )?"
_CUDA_WORDS: Final = "|".join((*REFUSED_WORDS, *_MISSED_WORDS))
_CUDA_NAME: Final = rf"{_CUDA_WORDS}|cuda[A-Z]\w*|cu[A-Z][a-z]\w*|CU[a-z]\w*|CUDA_[A-Z]\w*|__nv\w+"
_NO_NAME: Final = re.compile(
    rf"^(?P<file>[^:\n]+):(?P<line>\d+):\d+: error: {_UNKNOWN}'(?:::)?(?P<name>{_CUDA_NAME})'",
    re.MULTILINE,
)
_SAID: Final = "the emulator does not know this PTX"
_NO_PTX: Final = re.compile(
    rf"^(?P<file>[^:\n]+):(?P<line>\d+):\d+: error: static[ _]assert.*?(?P<said>{_SAID}: [^\"\n]*)",
    re.MULTILINE,
)
_HINT: Final = "`#ifdef __KERNELMILL_EMULATOR__` keeps another form for it"


def refusal(line: int, what: str, name: str, file: str = "") -> NotImplementedHere:
    """Return the error for a name at a line."""
    place = f"{file} line {line}" if file else f"line {line}"
    return NotImplementedHere(f"{place}: the emulator has no {what} ({name})", hint=_HINT)


def refusal_at(error: CompileError) -> NotImplementedHere | None:
    """Return the refusal that a compiler's error amounts to; None where it is another error.

    The compiler knows which branch of the preprocessor is taken, so headers and functions are
    refused where it misses them.
    """
    found = _NO_FILE.search(error.log)
    if found is not None:
        for begin, what in _LIBRARIES:
            if begin.match(found["name"]):
                return refusal(int(found["line"]), what, found["name"], found["file"])
    found = _REFUSING_FILE.search(error.log)
    if found is not None:
        return refusal(int(found["line"]), found["what"], found["name"], found["file"])
    found = _NO_NAME.search(error.log)
    if found is not None:
        words = {**REFUSED_WORDS, **_MISSED_WORDS}
        what = words.get(found["name"], "such function or type")
        return refusal(int(found["line"]), what, found["name"], found["file"])
    found = _NO_PTX.search(error.log)
    if found is not None:
        place = f"{found['file']} line {found['line']}"
        return NotImplementedHere(f"{place}: {found['said']}", hint=_HINT)
    return None


def unknown_ptx(text: str) -> str:
    """Return a statement that the compiler refuses, where it is compiled: PTX without a form."""
    shown = " ".join(text.split()).replace("\\", "").replace('"', "")
    return f'({{ static_assert(false, "{_SAID}: {shown}"); }})'
