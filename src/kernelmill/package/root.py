"""Where a project begins: the nearest directory above with a certain file. Reads no file."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["project_root"]


def project_root(file: str, start: Path | None = None) -> Path:
    """Return the nearest directory at or above `start` that holds `file`, else `start` itself.

    In the current directory that is `.`, so that messages name files as the user would. A file
    above counts if it belongs to this user or to the owner of `start`: in a directory that many
    may write to, such as /tmp, somebody else could have put it there.

    Parameters
    ----------
    file
        `build.toml`, `pyproject.toml`, `kernelmill.lock`.
    start
        Where to begin; the current directory by default.

    Examples
    --------
    >>> import os, tempfile
    >>> from pathlib import Path
    >>> from kernelmill.package.root import project_root
    >>> top = Path(tempfile.mkdtemp())
    >>> _ = (top / "build.toml").write_text("")
    >>> (top / "csrc").mkdir()
    >>> project_root("build.toml", top / "csrc") == top
    True
    """
    begin = Path() if start is None else start
    if (begin / file).is_file():
        return begin
    here = begin.absolute()
    trusted = {os.geteuid(), here.stat().st_uid}
    for directory in here.parents:
        found = directory / file
        if found.is_file() and found.stat().st_uid in trusted:
            return directory
    return begin
