"""Files that are replaced whole or not at all. Knows nothing of what they hold."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

__all__ = ["replace_file"]


def replace_file(path: Path, content: str | bytes) -> None:
    """Put new content in a file's place: a reader, or a full disk, never sees half of it.

    The mode of a file that was there stays; a symbolic link is written through.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from kernelmill.package.whole_file import replace_file
    >>> path = Path(tempfile.mkdtemp()) / "build.toml"
    >>> replace_file(path, "[general]")
    >>> path.read_text()
    '[general]'
    """
    target = path.resolve()
    data = content.encode() if isinstance(content, str) else content
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o666 & ~_umask()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.chmod(name, mode)  # noqa: PTH101 - a name from mkstemp
        os.replace(name, target)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    """Return the mask of new files, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
