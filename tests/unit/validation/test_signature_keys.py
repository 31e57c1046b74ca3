"""Scopes and public keys of the signature policy are checked, and a private key is named as one."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, x25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from headway.validation.signature_keys import scope_fault, signature_key_fault


def public(key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | x25519.X25519PrivateKey) -> str:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


@pytest.mark.parametrize(
    ("scope", "valid"),
    [
        ("registry.example.org", True),
        ("registry.example.org:5000/team/sub-team", True),
        ("localhost/x", True),
        ("build:5000", True),
        ("10.0.0.1:5000/team", True),
        ("team", False),
        ("team/image", False),
        ("registry.example.org/team:1", False),
        ("registry.example.org/Team", False),
        ("registry.example.org/", False),
        ("https://registry.example.org", False),
        ("index.docker.io", False),
        ("*.example.org", False),
        ("", False),
    ],
)
def test_scope_is_host_and_path_without_tag(scope: str, valid: bool) -> None:
    assert (scope_fault(scope) == "") == valid


def test_keys_of_signatures_are_accepted() -> None:
    for key in (ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()):
        assert signature_key_fault(public(key)) == ("", "")


def test_other_texts_are_refused_without_repeating_them() -> None:
    own = ed25519.Ed25519PrivateKey.generate()
    private = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    for text in (private, private + public(own), public(own) + private):
        assert signature_key_fault(text)[0] == "contains a private key"
    for text in (
        public(own) + public(own), public(own) + "password: x", f"password: x\n{public(own)}",
        "", "ssh-ed25519 AAAA", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "not-a-key",
    ):  # fmt: skip
        assert signature_key_fault(text)[0] == "is not a public key in PEM format"
    for other in (x25519.X25519PrivateKey.generate(), dsa.generate_private_key(1024)):
        text = other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        assert signature_key_fault(text)[0] == "is a public key that signatures of images do not use"
