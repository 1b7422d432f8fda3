"""Signatures over `metadata.json`: ed25519 keys that need no network, and sigstore bundles.

Whose signature is wanted is `policy`'s. An ed25519 signature is over repository, variant and the
bytes of `metadata.json`, each preceded by its length, so that it cannot be moved to another kernel;
it lies in `signatures/<variant>.json` of the repository. A bundle is `metadata.json.sigstore`
beside the metadata, as Hugging Face's own tools write it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kernelmill.errors import MissingExtraError, PackageError, TrustError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kernelmill.package.policy import Identity, Rule

__all__ = [
    "BUNDLE",
    "FOLDER",
    "Signed",
    "make_key",
    "public_key",
    "read_keys",
    "sign",
    "signature_path",
    "verify_signature",
]

FOLDER: Final = "signatures"
BUNDLE: Final = "metadata.json.sigstore"
FORMAT: Final = 1
_PREFIX: Final = "ed25519:"
_DOMAIN: Final = b"kernelmill signature of a variant, 1"
_MOST_BYTES: Final = 4 << 20
_ED25519: Final = 32


@dataclass(frozen=True, slots=True)
class Signed:
    """What signatures are over, and where they are.

    Parameters
    ----------
    repo_id, variant
        Whose metadata it is.
    metadata
        Its bytes.
    signatures, bundle
        The files with ed25519 signatures and with sigstore's; they need not be there.
    """

    repo_id: str
    variant: str
    metadata: bytes
    signatures: Path
    bundle: Path

    def message(self) -> bytes:
        """Return what an ed25519 signature is over."""
        parts = (_DOMAIN, self.repo_id.encode(), self.variant.encode(), self.metadata)
        return b"".join(len(part).to_bytes(8, "little") + part for part in parts)

    def holds(self, key: str) -> bool:
        """Return whether a key on the file of signatures signed this."""
        found = dict(_read_signatures(self.signatures, []))
        return key in found and _holds(key, found[key], self.message())


def read_keys(place: Path) -> list[str]:
    """Return the public keys that a file of signatures names; none where it is absent."""
    return [key for key, _ in _read_signatures(place, [])]


def signature_path(variant: str) -> str:
    """Return where in a repository the ed25519 signatures of a variant lie."""
    return f"{FOLDER}/{variant}.json"


# ----------------------------------------------------------------------------- verifying


def verify_signature(signed: Signed, rule: Rule) -> str:
    """Check that somebody on the list of a rule signed; return who.

    Raises
    ------
    TrustError
        Nobody did, or what is there is not over these bytes; the text says of each signature why
        it does not count.
    MissingExtraError
        The library that checks is not installed.
    """
    reasons: list[str] = []
    for check in (_by_key, _by_identity):
        who = check(signed, rule, reasons)
        if who:
            return who
    lines = [f"  {reason}" for reason in reasons or ["the rule names no keys"]]
    text = (
        f"{signed.repo_id} {signed.variant}: nobody on the list of {rule.publisher!r} has signed "
        "its metadata.json:"
    )
    raise TrustError(
        "\n".join([text, *lines]),
        hint=f"`kernelmill trust {signed.repo_id} --level 2` would load it without a signature",
    )


def _by_key(signed: Signed, rule: Rule, reasons: list[str]) -> str:
    if not rule.keys:
        return ""
    found = _read_signatures(signed.signatures, reasons)
    message = signed.message()
    for key, signature in found:
        if key not in rule.keys:
            reasons.append(f"the key {key} is not on the list")
        elif _holds(key, signature, message):
            return key
        else:
            reasons.append(f"the signature by {key} is not over these bytes")
    return ""


def _read_signatures(place: Path, reasons: list[str]) -> list[tuple[str, bytes]]:
    try:
        with place.open("rb") as stream:
            body = stream.read(_MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        reasons.append(f"there is no {FOLDER}/{place.name}")
        return []
    try:
        rows = json.loads(body)["signatures"]
        return [(str(r["key"]), base64.b64decode(r["signature"], validate=True)) for r in rows]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reasons.append(f"{FOLDER}/{place.name} cannot be read: {type(error).__name__}: {error}")
        return []


def _holds(key: str, signature: bytes, message: bytes) -> bool:
    crypto = _crypto()
    try:
        crypto.ed25519.Ed25519PublicKey.from_public_bytes(_key_bytes(key)).verify(
            signature, message
        )
    except crypto.InvalidSignature:
        return False
    return True


def _key_bytes(key: str) -> bytes:
    try:
        found = base64.b64decode(key.removeprefix(_PREFIX), validate=True)
    except ValueError:  # binascii.Error, and what is not ASCII
        found = b""
    if not key.startswith(_PREFIX) or len(found) != _ED25519:
        raise PackageError(f"{key[:80]!r} is no public key; accepted: ed25519: and base64")
    return found


def _by_identity(signed: Signed, rule: Rule, reasons: list[str]) -> str:
    if not rule.identities:
        return ""
    try:
        with signed.bundle.open("rb") as stream:
            body = stream.read(_MOST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        reasons.append(f"there is no {BUNDLE}")
        return ""
    try:
        _check_bundle(body, signed.metadata, rule.identities, rule.trusted_root)
    except _Rejected as error:
        reasons.append(f"{BUNDLE}: {error}")
        return ""
    names = ", ".join(one.subject for one in rule.identities)
    return f"sigstore: one of {names}"


class _Rejected(Exception):  # noqa: N818 - becomes a line of a TrustError
    """A bundle does not prove what is asked."""


def _check_bundle(
    body: bytes, metadata: bytes, identities: Iterable[Identity], trusted_root: str
) -> None:
    try:
        from sigstore.errors import Error  # noqa: PLC0415 - an extra, and slow
        from sigstore.models import Bundle, ClientTrustConfig, TrustedRoot  # noqa: PLC0415
        from sigstore.verify import Verifier, policy  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtraError(
            "sigstore bundles need the distribution sigstore, which is not installed",
            hint="pip install 'kernelmill[sigstore]'",
        ) from error
    wanted = policy.AnyOf(
        [policy.Identity(identity=one.subject, issuer=one.issuer) for one in identities]
    )
    try:
        root = (
            TrustedRoot.from_file(trusted_root)
            if trusted_root
            else ClientTrustConfig.production().trusted_root
        )
    except (Error, OSError, ValueError) as error:
        raise _Rejected(f"the roots of trust cannot be had: {error}") from error
    try:
        bundle = Bundle.from_json(body)
        Verifier(trusted_root=root).verify_artifact(metadata, bundle, wanted)
    except (Error, ValueError) as error:
        raise _Rejected(f"{type(error).__name__}: {error}") from error


# ----------------------------------------------------------------------------- signing


def make_key(place: Path) -> str:
    """Write a new private key, readable by its owner alone; return the public one.

    Raises
    ------
    PackageError
        There is such a file already.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from kernelmill.package.signature import make_key, public_key
    >>> with tempfile.TemporaryDirectory() as home:
    ...     key = make_key(pathlib.Path(home, "key.pem"))
    ...     key == public_key(pathlib.Path(home, "key.pem")), len(key)
    (True, 52)
    """
    crypto = _crypto()
    private = crypto.ed25519.Ed25519PrivateKey.generate()
    body: bytes = private.private_bytes(
        crypto.serialization.Encoding.PEM,
        crypto.serialization.PrivateFormat.PKCS8,
        crypto.serialization.NoEncryption(),
    )
    try:
        handle = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise PackageError(f"{place} is there already; a key is never overwritten") from None
    with os.fdopen(handle, "wb") as stream:
        stream.write(body)
    return public_key(place)


def public_key(place: Path) -> str:
    """Return the public key, as policies name it, of a file with a private one.

    Raises
    ------
    PackageError
        The file holds no ed25519 key, or others can read it.
    """
    crypto = _crypto()
    raw: bytes = (
        _private(place)
        .public_key()
        .public_bytes(
            crypto.serialization.Encoding.Raw,
            crypto.serialization.PublicFormat.Raw,
        )
    )
    return _PREFIX + base64.b64encode(raw).decode()


def sign(repo_id: str, variant: str, metadata: bytes, keys: Iterable[Path]) -> bytes:
    """Return the file of signatures by some private keys over one variant's metadata.

    Raises
    ------
    PackageError
        A key file cannot be used.
    """
    signed = Signed(repo_id, variant, metadata, Path(), Path())
    rows = [
        {
            "key": public_key(place),
            "signature": base64.b64encode(_private(place).sign(signed.message())).decode(),
        }
        for place in keys
    ]
    body = {
        "format": FORMAT,
        "metadata-sha256": hashlib.sha256(metadata).hexdigest(),
        "signatures": rows,
    }
    return (json.dumps(body, indent=1, sort_keys=True) + "\n").encode()


def _private(place: Path) -> Any:  # Any: a class of an extra
    crypto = _crypto()
    if place.stat().st_mode & 0o077:
        raise PackageError(f"the key {place} can be read by others", hint=f"chmod 600 {place}")
    try:
        found = crypto.serialization.load_pem_private_key(place.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise PackageError(f"{place} holds no private key without a password: {error}") from None
    if not isinstance(found, crypto.ed25519.Ed25519PrivateKey):
        raise PackageError(f"{place} holds a key of another kind; accepted: ed25519")
    return found


class _Crypto:
    """What is used of the distribution `cryptography`."""

    def __init__(self) -> None:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415

        self.InvalidSignature = InvalidSignature
        self.serialization = serialization
        self.ed25519 = ed25519


def _crypto() -> Any:  # Any: `_Crypto`, whose members have types only where the extra is
    try:
        return _Crypto()
    except ImportError as error:
        raise MissingExtraError(
            "ed25519 signatures need the distribution cryptography, which is not installed",
            hint="pip install 'kernelmill[sign]'",
        ) from error
