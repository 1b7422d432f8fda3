"""Pictures as arrays of RGB structs: the photograph, and how files are read and written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kernelmill.dtypes import uint8
from kernelmill.errors import ArgumentError, MissingExtraError
from kernelmill.structs import struct

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "PHOTOGRAPH",
    "RGB",
    "Pixels",
    "directory_for",
    "load_picture",
    "save_picture",
    "write_pictures",
]

PHOTOGRAPH: Final = Path(__file__).resolve().parent / "data" / "chelsea.png"
RGB: Final = struct({"r": uint8, "g": uint8, "b": uint8}, name="RGB")

Pixels = np.ndarray[Any, Any]


def load_picture(path: Path = PHOTOGRAPH) -> Pixels:
    """Return a picture as an array of shape (height, width) of RGB structs.

    Raises
    ------
    MissingExtraError
        pillow is not installed.
    ArgumentError
        The file is not a picture that pillow can read.
    """
    pillow = _pillow()
    try:
        with pillow.open(path) as picture:
            image = picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, pillow.DecompressionBombError) as error:
        raise ArgumentError(
            f"{path} cannot be read as a picture: {error}",
            hint="any format that pillow reads will do: PNG, JPEG, TIFF, WebP, …",
        ) from error
    pixels: Pixels = np.ascontiguousarray(np.asarray(image)).view(RGB.dtype)[..., 0]
    return pixels


def save_picture(gray: Pixels, path: Path) -> None:
    """Write an array of uint8 of shape (height, width) as a picture."""
    _pillow().fromarray(gray).save(path)


def write_pictures(pictures: Mapping[str, Pixels], directory: Path) -> tuple[Path, ...]:
    """Write pictures by their names; return the files.

    Raises ArgumentError when one cannot be written.
    """
    written = []
    for name, array in pictures.items():
        path = directory / f"{name}.png"
        try:
            save_picture(array, path)
        except OSError as error:
            raise ArgumentError(
                f"{path} cannot be written: {error.strerror or error}",
                hint="name another directory with `--output`",
            ) from error
        written.append(path)
    return tuple(written)


def _pillow() -> Any:  # Any: the module of an optional dependency
    try:
        from PIL import Image  # noqa: PLC0415 - an extra, needed by the demo alone
    except ImportError:
        raise MissingExtraError(
            "reading and writing pictures needs pillow", hint="pip install 'kernelmill[demo]'"
        ) from None
    return Image


def directory_for(path: Path) -> Path:
    """Make the directory for pictures if it is not there; return it.

    Raises ArgumentError when it cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentError(
            f"the directory {path} cannot be made: {error.strerror}",
            hint="name another one with `--output`",
        ) from error
    return path
