"""A sigstore instance of one's own, in memory: certificate authority, transparency log, their roots."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

ISSUER = "https://accounts.example.com"
_ISSUER_OID = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
_SCT_OID = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_ECDSA = ec.ECDSA(hashes.SHA256())


def b64(body):
    return base64.b64encode(body).decode()


def spki(key):
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def der(certificate):
    return certificate.public_bytes(serialization.Encoding.DER)


class Instance:
    """Keys of an authority (Fulcio), a certificate log and a signature log (Rekor)."""

    def __init__(self):
        self.now = datetime.now(UTC).replace(microsecond=0)
        self.authority, self.certificates, self.log = (
            ec.generate_private_key(ec.SECP256R1()) for _ in range(3)
        )
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self.root = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.authority.public_key())
            .serial_number(1)
            .not_valid_before(self.now - timedelta(days=10))
            .not_valid_after(self.now + timedelta(days=10))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self.authority.public_key()), critical=False)
            .sign(self.authority, hashes.SHA256())
        )  # fmt: skip

    def trusted_root(self):
        """Return the JSON of the roots of trust."""
        since = {"start": (self.now - timedelta(days=20)).strftime("%Y-%m-%dT%H:%M:%SZ")}

        def log(key):
            return {
                "baseUrl": "https://log.example.com", "hashAlgorithm": "SHA2_256",
                "publicKey": {"rawBytes": b64(spki(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": since},
                "logId": {"keyId": b64(hashlib.sha256(spki(key)).digest())},
            }  # fmt: skip

        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [log(self.log)],
                "ctlogs": [log(self.certificates)],
                "certificateAuthorities": [
                    {
                        "subject": {"organization": "test", "commonName": "test authority"},
                        "uri": "https://authority.example.com",
                        "certChain": {"certificates": [{"rawBytes": b64(der(self.root))}]},
                        "validFor": since,
                    }
                ],
                "timestampAuthorities": [],
            }
        )

    def certificate(self, key, subject, begins, lasts):
        """Return a certificate for ten minutes or so, with the log's promise in it."""
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.root.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(begins)
            .not_valid_after(begins + lasts)
            .add_extension(x509.KeyUsage(True, False, False, False, False, False, False, False, False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.authority.public_key()), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.RFC822Name(subject)]), critical=True)
            .add_extension(x509.UnrecognizedExtension(_ISSUER_OID, ISSUER.encode()), critical=False)
        )  # fmt: skip
        before = builder.sign(self.authority, hashes.SHA256())
        promise = self._certificate_promise(before.tbs_certificate_bytes, begins)
        listed = struct.pack("!HH", len(promise) + 2, len(promise)) + promise
        return builder.add_extension(
            x509.UnrecognizedExtension(_SCT_OID, octets(listed)), critical=False
        ).sign(self.authority, hashes.SHA256())

    def _certificate_promise(self, body, when):
        """Return the log's signed timestamp over a certificate without it (RFC 6962)."""
        milliseconds = int(when.timestamp() * 1000)
        issuer = hashlib.sha256(spki(self.authority)).digest()
        signed = struct.pack("!BBQH32s", 0, 0, milliseconds, 1, issuer)
        signed += len(body).to_bytes(3, "big") + body + struct.pack("!H", 0)
        signature = self.certificates.sign(signed, _ECDSA)
        log = hashlib.sha256(spki(self.certificates)).digest()
        head = struct.pack("!B32sQH", 0, log, milliseconds, 0)
        return head + struct.pack("!BBH", 4, 3, len(signature)) + signature

    def sign(self, body, subject="ann@example.com", *, late=timedelta(), begins=None):
        """Return the bundle of a signature by `subject`; `late` after the certificate began."""
        begins = begins or self.now - timedelta(hours=1)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self.certificate(key, subject, begins, timedelta(minutes=10))
        signature = key.sign(body, _ECDSA)
        digest = hashlib.sha256(body)
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        record = json.dumps(
            {
                "apiVersion": "0.0.1", "kind": "hashedrekord",
                "spec": {
                    "data": {"hash": {"algorithm": "sha256", "value": digest.hexdigest()}},
                    "signature": {"content": b64(signature), "publicKey": {"content": b64(pem)}},
                },
            },
            sort_keys=True, separators=(",", ":"),
        ).encode()  # fmt: skip
        when = int((begins + timedelta(minutes=1) + late).timestamp())
        return json.dumps(
            {
                "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
                "verificationMaterial": {
                    "certificate": {"rawBytes": b64(der(certificate))},
                    "tlogEntries": [self._entry(record, when)],
                },
                "messageSignature": {
                    "messageDigest": {"algorithm": "SHA2_256", "digest": b64(digest.digest())},
                    "signature": b64(signature),
                },
            }
        ).encode()

    def _entry(self, record, when):
        log = hashlib.sha256(spki(self.log)).digest()
        root = hashlib.sha256(b"\0" + record).digest()
        note = f"log.example.com\n1\n{b64(root)}\n"
        mark = b64(log[:4] + self.log.sign(note.encode(), _ECDSA))
        promised = {"body": b64(record), "integratedTime": when, "logID": log.hex(), "logIndex": 0}
        text = json.dumps(promised, sort_keys=True, separators=(",", ":")).encode()
        return {
            "logIndex": "0",
            "logId": {"keyId": b64(log)},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.1"},
            "integratedTime": str(when),
            "inclusionPromise": {"signedEntryTimestamp": b64(self.log.sign(text, _ECDSA))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": b64(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n\u2014 log.example.com {mark}\n"},
            },
            "canonicalizedBody": b64(record),
        }


def octets(body):
    """Return a DER OCTET STRING."""
    size = len(body)
    head = bytes([size]) if size < 128 else bytes([0x81, size]) if size < 256 else b"\x82" + size.to_bytes(2, "big")  # fmt: skip
    return b"\x04" + head + body
