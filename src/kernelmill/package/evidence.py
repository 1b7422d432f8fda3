"""What proves that a variant is what its commit and its publisher promise. No policy here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernelmill.errors import IntegrityError
from kernelmill.package.digest import file_hash, git_blob_id
from kernelmill.package.metadata import FILE
from kernelmill.package.signature import BUNDLE, Signed, signature_path, verify_signature

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kernelmill.package.load import Candidate
    from kernelmill.package.policy import Rule
    from kernelmill.package.registry import File

__all__ = ["check_signature", "verify_commit"]


def check_signature(repo_id: str, rule: Rule, directory: Path, metadata: bytes) -> None:
    """Check that somebody on the list of a rule signed a variant's metadata.

    Parameters
    ----------
    repo_id, rule
        Whose kernel it is, and what is asked.
    directory
        The variant's, in a repository.
    metadata
        The bytes of its `metadata.json`.

    Raises
    ------
    TrustError
        Nobody did, for this repository, variant and these bytes.
    """
    repository = directory.parent.parent
    signed = Signed(
        repo_id,
        directory.name,
        metadata,
        repository / signature_path(directory.name),
        directory / BUNDLE,
    )
    verify_signature(signed, rule)


def verify_commit(found: Candidate, files: Mapping[str, File]) -> None:
    """Compare a variant on disk with the listing of its commit: blob ids, sha256 of large files.

    Parameters
    ----------
    found
        The variant.
    files
        Path below the variant's directory → file of the commit.

    Raises
    ------
    IntegrityError
        A file is missing, unknown or another one; the text names each.
    """
    sums = found.digest.hexadecimal() if found.digest.algorithm == "sha256" else {}
    there = {*found.digest.files, FILE}
    if (found.directory / BUNDLE).is_file():
        there.add(BUNDLE)
    lines = [f"  {path}: missing" for path in sorted(set(files) - there)]
    lines += [f"  {path}: unknown" for path in sorted(there - set(files))]
    for path in sorted(there & set(files)):
        file, place = files[path], found.directory / path
        large = sums.get(path) or file_hash(place).hex() if file.sha256 else ""
        key = large or git_blob_id(place)
        if key != file.key:
            lines.append(f"  {path}: the commit has {file.key}, found {key}")
    if lines:
        raise IntegrityError(
            "\n".join([f"{found.directory} is not what its commit consists of:", *lines[:12]]),
            hint="nothing of it was imported; `kernelmill verify --repair` downloads it again",
        )
