"""Registries from their addresses and settings. What they do is in their own modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kernelmill.config import child_environment
from kernelmill.errors import PackageError
from kernelmill.package.registry_files import FilesRegistry
from kernelmill.package.registry_hub import HubRegistry
from kernelmill.package.shelf import open_shelf

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelmill.package.policy import RegistrySettings
    from kernelmill.package.registry import Registry

__all__ = ["open_mirrors", "open_registry", "open_settings"]

_FILES: Final = "files+"
_HUB: Final = "hub+"


def open_registry(
    url: str,
    *,
    token: str | bool | None = None,
    options: Mapping[str, Any] | None = None,
) -> Registry:
    """Return the registry at an address.

    Parameters
    ----------
    url
        `https://...` speaks the Hub's protocol; a path, `file://`, `memory://`, `s3://` and what
        else fsspec knows are files; `files+https://...` are files that a web server offers.
    token
        For the Hub's protocol: None for what `huggingface_hub` finds, False for none.
    options
        For files: keyword arguments of fsspec's file system.

    Examples
    --------
    >>> from kernelmill.package.registry_open import open_registry
    >>> open_registry("memory://shelf").url
    'memory://shelf'
    """
    if url.startswith(_FILES):
        return FilesRegistry(open_shelf(url.removeprefix(_FILES), dict(options or {})))
    plain = url.removeprefix(_HUB)
    if plain.startswith(("http://", "https://")):
        if "@" in plain.partition("://")[2].partition("/")[0]:
            raise PackageError(
                "the address of a registry holds a name or a password; accepted: none",
                hint="name an environment variable in `token-variable`",
            )
        return HubRegistry(plain, token=token)
    return FilesRegistry(open_shelf(url, dict(options or {})))


def open_settings(settings: RegistrySettings) -> Registry:
    """Return the registry of a configuration, with its token.

    Raises
    ------
    PackageError
        The environment variable that should hold the token is not set.
    """
    return open_registry(settings.url, token=_token(settings), options=settings.options)


def open_mirrors(settings: RegistrySettings) -> tuple[Registry, ...]:
    """Return the mirrors of a registry, in order. They get no token: theirs is another address."""
    return tuple(open_registry(url, token=False) for url in settings.mirrors)


def _token(settings: RegistrySettings) -> str | None:
    if not settings.token_variable:
        return None
    token = child_environment().get(settings.token_variable)
    if not token:
        raise PackageError(
            f"the registry {settings.name!r} takes its token from {settings.token_variable}, "
            "which is not set"
        )
    return token
