"""LTO-IR that a text carries along: written into it, and read out of it again. Links nothing.

A text says all that its kernel is made of, so that a key of the text is a key of the kernel.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Final

from kernelmill.toolchain.nvrtc import CudaImage

__all__ = ["attach", "attached"]

_MARK: Final = "// ltoir "
_LINE: Final = re.compile(r"^// ltoir (\S+) (\S+)$", re.MULTILINE)
# Where it comes from is not known, so nvJitLink decides whether it can read it.
_UNKNOWN: Final = (0, 0)


def attach(name: str, image: bytes) -> str:
    """Return the line that carries an image.

    Examples
    --------
    >>> from kernelmill.toolchain.attached import attach, attached
    >>> attached(attach("op", b"image"))[0].data
    b'image'
    """
    return f"{_MARK}{name} {b64encode(image).decode()}\n"


def attached(text: str) -> list[CudaImage]:
    """Return the images that a text carries, each once."""
    if _MARK not in text:
        return []
    found = dict.fromkeys(_LINE.findall(text))
    return [
        CudaImage(b64decode(data), "", "ltoir", name=name, producer=_UNKNOWN)
        for name, data in found
    ]
