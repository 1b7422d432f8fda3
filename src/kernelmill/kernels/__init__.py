"""`@km.kernel`: SIMT kernels written in Python, compiled for what they are called with.

arguments  what is passed becomes types, and a key that tells kernels apart
variants   one kernel for one choice of arguments: IR, text, image
launching  the decorator: choice of a variant, and its launch

The language is translated in `compiler/`; devices are in `runtime/`.
"""

from kernelmill.kernels.launching import KernelFunction, kernel

__all__ = ["KernelFunction", "kernel"]
