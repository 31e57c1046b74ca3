"""Fingerprints of certificates, as SSH, openssl and browsers write them."""

from __future__ import annotations

import hashlib

import pytest

from headway.validation.tls_fingerprint import EXAMPLE, fingerprint_of, parse_fingerprint

HEX = hashlib.sha256(b"").hexdigest()


def test_fingerprint_is_the_hash_in_base64() -> None:
    assert fingerprint_of(b"") == EXAMPLE


@pytest.mark.parametrize(
    "text",
    [EXAMPLE, f" {EXAMPLE}=\n", EXAMPLE.removeprefix("SHA256:"), HEX, f"sha256:{HEX}",
     ":".join(HEX[i : i + 2].upper() for i in range(0, 64, 2))],
)  # fmt: skip
def test_common_forms_of_a_fingerprint_are_read(text: str) -> None:
    assert parse_fingerprint(text) == EXAMPLE


@pytest.mark.parametrize("text", ["", "SHA256:", "SHA256:abc", "MD5:47:DE", f"{EXAMPLE}A", HEX[:-1], "é" * 43])
def test_invalid_fingerprint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a SHA-256 fingerprint"):
        parse_fingerprint(text)
