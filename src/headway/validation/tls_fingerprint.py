"""Fingerprints of TLS certificates, written as SSH writes those of host keys: SHA256: and the hash in base64."""

from __future__ import annotations

import base64
import binascii
import hashlib

PREFIX = "SHA256:"
EXAMPLE = f"{PREFIX}47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU"


def fingerprint_of(certificate: bytes) -> str:
    """Returns the fingerprint of a certificate in DER form."""
    return _written(hashlib.sha256(certificate).digest())


def parse_fingerprint(text: str) -> str:
    """Returns the fingerprint in its usual form. Also accepts the hexadecimal form of openssl and browsers, with or
    without colons. Raises ValueError."""
    word = text.strip()
    if word[: len(PREFIX)].upper() == PREFIX:
        word = word[len(PREFIX) :]
    bare = word.replace(":", "")
    try:
        if len(bare) == 64:
            return _written(bytes.fromhex(bare))
        found = base64.b64decode(f"{word.rstrip('=')}=", validate=True)
    except (ValueError, binascii.Error):
        found = b""
    if len(found) != hashlib.sha256().digest_size:
        raise ValueError(f"{text[:80]!r} is not a SHA-256 fingerprint")
    return _written(found)


def _written(digest: bytes) -> str:
    return PREFIX + base64.b64encode(digest).decode().rstrip("=")
