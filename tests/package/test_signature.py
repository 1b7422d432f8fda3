"""Signatures: ed25519 keys and sigstore bundles, and every way in which one does not count."""

from __future__ import annotations

import base64
import json
from datetime import timedelta

import pytest

from hub_clients import clean, forget_kernels, publish, served  # noqa: F401 - fixtures
from kernel_packages import write_project
from kernelmill import hub
from kernelmill.config import override
from kernelmill.errors import MissingExtraError, PackageError, TrustError
from kernelmill.package.policy import Identity, Rule
from kernelmill.package.push import plan_push, push
from kernelmill.package.signature import (
    Signed,
    make_key,
    public_key,
    sign,
    signature_path,
    verify_signature,
)

pytest.importorskip("cryptography")
METADATA = b'{"name": "twice"}'


@pytest.fixture
def key(tmp_path):
    make_key(tmp_path / "key.pem")
    return tmp_path / "key.pem"


def signed(tmp_path, body=METADATA, *, repo_id="org/twice", variant="torch-cpu"):
    return Signed(repo_id, variant, body, tmp_path / "signatures.json", tmp_path / "bundle")


def test_a_signature_by_a_key_on_the_list_counts(tmp_path, key):
    public = public_key(key)
    (tmp_path / "signatures.json").write_bytes(sign("org/twice", "torch-cpu", METADATA, [key]))
    rule = Rule("org", 3, keys=("ed25519:" + "A" * 43 + "=", public))
    assert verify_signature(signed(tmp_path), rule) == public


def test_it_is_bound_to_repository_variant_and_bytes(tmp_path, key):
    """A signature cannot be moved to another kernel, nor an older one be shown for a newer."""
    (tmp_path / "signatures.json").write_bytes(sign("org/twice", "torch-cpu", METADATA, [key]))
    rule = Rule("org", 3, keys=(public_key(key),))
    for changed in (
        signed(tmp_path, repo_id="org/other"),
        signed(tmp_path, variant="torch-cuda"),
        signed(tmp_path, METADATA + b" "),
        signed(tmp_path, repo_id="org/twic", variant="etorch-cpu"),
    ):
        with pytest.raises(TrustError, match="is not over these bytes") as caught:
            verify_signature(changed, rule)
        assert f"kernelmill trust {changed.repo_id} --level 2" in caught.value.hint


def test_another_key_does_not_count(tmp_path, key):
    make_key(tmp_path / "other.pem")
    other = public_key(tmp_path / "other.pem")
    (tmp_path / "signatures.json").write_bytes(sign("org/twice", "torch-cpu", METADATA, [tmp_path / "other.pem"]))  # fmt: skip
    with pytest.raises(TrustError) as caught:
        verify_signature(signed(tmp_path), Rule("org", 3, keys=(public_key(key),)))
    assert f"the key {other} is not on the list" in str(caught.value)


def test_a_key_that_is_none_is_named(tmp_path, key):
    body = json.loads(sign("org/twice", "torch-cpu", METADATA, [key]))
    body["signatures"][0]["key"] = "ed25519:\u00e9"
    (tmp_path / "signatures.json").write_text(json.dumps(body))
    with pytest.raises(PackageError, match="is no public key; accepted: ed25519: and base64"):
        signed(tmp_path).holds("ed25519:\u00e9")


def test_a_signature_put_under_another_name_does_not_count(tmp_path, key):
    make_key(tmp_path / "other.pem")
    body = json.loads(sign("org/twice", "torch-cpu", METADATA, [tmp_path / "other.pem"]))
    body["signatures"][0]["key"] = public_key(key)
    (tmp_path / "signatures.json").write_text(json.dumps(body))
    with pytest.raises(TrustError, match="is not over these bytes"):
        verify_signature(signed(tmp_path), Rule("org", 3, keys=(public_key(key),)))


@pytest.mark.parametrize("body", [None, b"", b"{", b"[]", b'{"signatures": [{}]}', b'{"signatures": [{"key": 1, "signature": "?"}]}',
                                  b'{"signatures": 3}'])  # fmt: skip
def test_a_file_of_signatures_that_is_torn_or_absent_counts_for_nothing(tmp_path, key, body):
    if body is not None:
        (tmp_path / "signatures.json").write_bytes(body)
    with pytest.raises(TrustError, match="nobody on the list of 'org' has signed"):
        verify_signature(signed(tmp_path), Rule("org", 3, keys=(public_key(key),)))


def test_keys_are_kept_from_others(tmp_path, key):
    with pytest.raises(PackageError, match="a key is never overwritten"):
        make_key(key)
    key.chmod(0o644)
    with pytest.raises(PackageError, match="can be read by others"):
        public_key(key)
    other = tmp_path / "not-a-key"
    other.write_text("x")
    other.chmod(0o600)
    with pytest.raises(PackageError, match="holds no private key"):
        public_key(other)


def test_level_3_end_to_end(served, tmp_path, key):  # noqa: F811
    root = write_project(tmp_path / "p")
    registry = served.service.registry
    text = f'[[trust]]\npublisher = "org"\nlevel = 3\nkeys = ["{public_key(key)}"]\n'
    (tmp_path / "hub.toml").write_text(text)
    push(plan_push(root, "org/twice", registry), registry)
    with pytest.raises(TrustError, match=r"there is no signatures/torch-universal.json"):
        hub.get_kernel("org/twice", version=1)
    assert not hub.loaded()
    push(plan_push(root, "org/twice", registry, keys=[key]), registry)
    assert hub.get_kernel("org/twice", version=1).twice(1) == 2
    forget_kernels()
    with override(hub_offline=True):
        assert hub.get_kernel("org/twice", version=1).twice(1) == 2
    forget_kernels()
    changed = write_project(tmp_path / "q", semantic="1.1.0")
    push(plan_push(changed, "org/twice", registry), registry)
    with pytest.raises(TrustError, match="torch-universal"):
        hub.get_kernel("org/twice", version=1)


def test_a_stolen_signature_file_does_not_help_another_repository(served, tmp_path, key):  # noqa: F811
    root = write_project(tmp_path / "p")
    registry = served.service.registry
    (tmp_path / "hub.toml").write_text(f'[[trust]]\npublisher = "org"\nlevel = 3\nkeys = ["{public_key(key)}"]\n')  # fmt: skip
    push(plan_push(root, "org/twice", registry, keys=[key]), registry)
    body = registry.read("org/twice", "v1", signature_path("torch-universal"))
    place = root / signature_path("torch-universal")
    place.parent.mkdir()
    place.write_bytes(body)
    publish(served, root, "org/other")
    with pytest.raises(TrustError, match="is not over these bytes"):
        hub.get_kernel("org/other", version=1)


# ----------------------------------------------------------------------------- sigstore


@pytest.fixture(scope="module")
def instance():
    pytest.importorskip("sigstore")
    import sigstore_instance

    return sigstore_instance.Instance()


def rule(tmp_path, instance, subject="ann@example.com", issuer="https://accounts.example.com"):
    (tmp_path / "root.json").write_text(instance.trusted_root())
    return Rule("org", 3, identities=(Identity(subject, issuer),), trusted_root=str(tmp_path / "root.json"))  # fmt: skip


def test_a_bundle_of_the_right_identity_counts(tmp_path, instance):
    (tmp_path / "bundle").write_bytes(instance.sign(METADATA))
    said = verify_signature(signed(tmp_path), rule(tmp_path, instance))
    assert said == "sigstore: one of ann@example.com"


def tampered(body, change):
    bundle = json.loads(body)
    change(bundle)
    return json.dumps(bundle).encode()


def entry(bundle):
    return bundle["verificationMaterial"]["tlogEntries"][0]


def flipped(text):
    body = bytearray(base64.b64decode(text))
    body[-1] ^= 1
    return base64.b64encode(bytes(body)).decode()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda i: i.sign(b"other bytes"), "digest mismatch"),
        (lambda i: i.sign(METADATA, "bob@example.com"), "bob@example.com|0 of 1 policies"),
        (lambda i: i.sign(METADATA, late=timedelta(hours=1)), "certificate chain|expired"),
        (lambda i: i.sign(METADATA, begins=i.now - timedelta(days=30)), "certificate chain"),
        (lambda i: type(i)().sign(METADATA), "certificate chain"),
        (lambda i: b"{", "Invalid|invalid"),
        (lambda i: b"\xff\xfe", ""),
        (lambda i: tampered(i.sign(METADATA), lambda b: entry(b).update(integratedTime="1")), ""),
        (lambda i: tampered(i.sign(METADATA), lambda b: entry(b)["inclusionProof"].update(rootHash=flipped(entry(b)["inclusionProof"]["rootHash"]))), "inclusion"),
        (lambda i: tampered(i.sign(METADATA), lambda b: entry(b)["inclusionPromise"].update(signedEntryTimestamp=flipped(entry(b)["inclusionPromise"]["signedEntryTimestamp"]))), "SET"),
        (lambda i: tampered(i.sign(METADATA), lambda b: b["messageSignature"].update(signature=flipped(b["messageSignature"]["signature"]))), "Signature is invalid|"),
        (lambda i: tampered(i.sign(METADATA), lambda b: b["verificationMaterial"].update(certificate=json.loads(i.sign(METADATA))["verificationMaterial"]["certificate"])), ""),
    ],
)  # fmt: skip
def test_a_bundle_that_proves_something_else_is_refused(tmp_path, instance, make, text):
    (tmp_path / "bundle").write_bytes(make(instance))
    with pytest.raises(TrustError, match=rf"metadata.json.sigstore: [\s\S]*({text})"):
        verify_signature(signed(tmp_path), rule(tmp_path, instance))


def test_another_issuer_does_not_count(tmp_path, instance):
    (tmp_path / "bundle").write_bytes(instance.sign(METADATA))
    wrong = rule(tmp_path, instance, issuer="https://evil.example.com")
    with pytest.raises(TrustError, match=r"metadata.json.sigstore"):
        verify_signature(signed(tmp_path), wrong)
    with pytest.raises(TrustError, match=r"there is no metadata.json.sigstore"):
        (tmp_path / "bundle").unlink()
        verify_signature(signed(tmp_path), rule(tmp_path, instance))


def test_a_root_that_is_absent_is_no_root(tmp_path, instance):
    (tmp_path / "bundle").write_bytes(instance.sign(METADATA))
    lost = Rule("org", 3, identities=(Identity("a", "b"),), trusted_root=str(tmp_path / "none"))
    with pytest.raises(TrustError, match="the roots of trust cannot be had"):
        verify_signature(signed(tmp_path), lost)


def test_bundles_end_to_end(served, tmp_path, instance):  # noqa: F811
    root = write_project(tmp_path / "p")
    variant = root / "build/torch-universal"
    bundle = instance.sign((variant / "metadata.json").read_bytes())
    (variant / "metadata.json.sigstore").write_bytes(bundle)
    (tmp_path / "root.json").write_text(instance.trusted_root())
    (tmp_path / "hub.toml").write_text(
        '[[trust]]\npublisher = "org"\nlevel = 3\ntrusted-root = "%s"\n'
        'sigstore = [{ identity = "ann@example.com", issuer = "https://accounts.example.com" }]\n'
        % (tmp_path / "root.json")
    )
    publish(served, root)
    assert hub.get_kernel("org/twice", version=1).twice(1) == 2
    forget_kernels()
    made = json.loads((variant / "metadata.json").read_text())
    (variant / "metadata.json").write_text(json.dumps({**made, "license": "MIT"}))
    publish(served, root)
    with pytest.raises(TrustError, match="digest mismatch"):
        hub.get_kernel("org/twice", version=1)


def test_missing_libraries_are_named(tmp_path, key, monkeypatch):
    import sys

    (tmp_path / "bundle").write_bytes(b"{}")
    (tmp_path / "signatures.json").write_bytes(sign("org/twice", "torch-cpu", METADATA, [key]))
    public = public_key(key)
    monkeypatch.setitem(sys.modules, "sigstore.errors", None)
    with pytest.raises(MissingExtraError) as caught:
        verify_signature(signed(tmp_path), Rule("org", 3, identities=(Identity("a", "b"),)))
    assert caught.value.hint == "pip install 'kernelmill[sigstore]'"
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(MissingExtraError) as caught:
        verify_signature(signed(tmp_path), Rule("org", 3, keys=(public,)))
    assert caught.value.hint == "pip install 'kernelmill[sign]'"
