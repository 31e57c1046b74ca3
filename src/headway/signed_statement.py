"""Signed statements: an in-toto statement in a DSSE envelope, which the server signs and `headway model verify` checks.

Source of the formats: github.com/in-toto/attestation (Statement v1), github.com/secure-systems-lab/dsse (envelope, PAE)."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headway.errors import Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT = "https://in-toto.io/Statement/v1"


def signed_message(payload: bytes) -> bytes:
    """Returns the bytes that the signature of a DSSE envelope covers."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def envelope(payload: bytes, key: EllipticCurvePrivateKey) -> dict[str, Any]:
    """Returns a DSSE envelope with the payload, an in-toto statement, signed by ECDSA with SHA-256."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    signature = key.sign(signed_message(payload), ec.ECDSA(SHA256()))
    return {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(payload).decode(),
        "signatures": [{"sig": base64.b64encode(signature).decode()}],
    }


def new_signing_key() -> str:
    """Returns a new private key (ECDSA, P-256) as PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def read_signing_key(pem: str) -> EllipticCurvePrivateKey:
    """Returns the private key of a PEM text. Raises Refused for any other text."""
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem.encode(), None)
    except (TypeError, ValueError):
        key = None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise Refused("the signing key is not an ECDSA key", hint="restore the server's database from its backup")
    return key


def public_key(pem: str) -> str:
    """Returns the public key of a private one, both as PEM. Raises Refused."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = read_signing_key(pem).public_key()
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def open_envelope(text: bytes, public_pem: bytes) -> dict[str, Any]:
    """Returns the statement in an envelope that was signed with the private key of `public_pem`. Raises Refused if it is no
    envelope, or the signature does not fit."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(public_pem)
    except ValueError:
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise Refused("the key is not a public ECDSA key (PEM)", hint="headway model key > headway.pub")
    payload, signatures = _parts(text)
    for signature in signatures:
        try:
            key.verify(signature, signed_message(payload), ec.ECDSA(SHA256()))
        except InvalidSignature:
            continue
        statement = json.loads(payload)
        if not isinstance(statement, dict) or statement.get("_type") != STATEMENT:
            break
        return statement
    raise Refused(
        "the signature does not fit: the manifest was changed, or another key signed it",
        hint="take the key of the cluster that promoted the model: headway model key",
    )


def _parts(text: bytes) -> tuple[bytes, list[bytes]]:
    """Returns (payload, signatures) of an envelope."""
    try:
        found = json.loads(text)
        if not isinstance(found, Mapping) or found.get("payloadType") != PAYLOAD_TYPE:
            raise ValueError
        payload = base64.b64decode(found["payload"], validate=True)
        return payload, [base64.b64decode(one["sig"], validate=True) for one in found["signatures"]]
    except (ValueError, KeyError, TypeError):
        raise Refused("this is no signed manifest", hint="headway model manifest PROMOTION > manifest.json") from None
