"""Several registries as one to read from: each repository is asked for where the policy says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernelmill.errors import RegistryError

if TYPE_CHECKING:
    from kernelmill.package.obtain import Shelves
    from kernelmill.package.registry import File, Refs, Registry

__all__ = ["Routed"]


@dataclass(frozen=True, slots=True)
class Routed:
    """See `Registry` for the methods.

    Parameters
    ----------
    shelves
        Which registry serves which organization; they are opened once.
    """

    shelves: Shelves

    def _of(self, repo_id: str) -> Registry:
        if self.shelves.offline:
            raise RegistryError(
                f"{repo_id}: no registry is asked while offline", hint="unset HF_HUB_OFFLINE"
            )
        return self.shelves.open(self.shelves.settings(repo_id))

    def refs(self, repo_id: str) -> Refs:
        """See `Registry`."""
        return self._of(repo_id).refs(repo_id)

    def commit(self, repo_id: str, revision: str) -> str:
        """See `Registry`."""
        return self._of(repo_id).commit(repo_id, revision)

    def files(self, repo_id: str, commit: str) -> tuple[File, ...]:
        """See `Registry`."""
        return self._of(repo_id).files(repo_id, commit)

    def read(self, repo_id: str, commit: str, path: str, *, limit: int = 32 << 20) -> bytes:
        """See `Registry`."""
        return self._of(repo_id).read(repo_id, commit, path, limit=limit)
