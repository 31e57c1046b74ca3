"""Checks the scopes and the public keys of the signature policy of container images."""

from __future__ import annotations

import re

_HOST = r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::[0-9]{1,5})?|[A-Za-z0-9-]+:[0-9]{1,5}|localhost)"
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
SCOPE = rf"{_HOST}(?:/{_PART})*"
_ONE_PUBLIC_KEY = r"-----BEGIN ((?:RSA )?PUBLIC KEY)-----[A-Za-z0-9+/=\s]+-----END \1-----"
_HUB_NAMES = ("index.docker.io", "registry-1.docker.io", "registry.hub.docker.com", "hub.docker.com")


def scope_fault(scope: str) -> str:
    """Returns what is wrong with HOST[:PORT][/PATH], or ""."""
    if len(scope) > 300 or not re.fullmatch(SCOPE, scope):
        return "must be HOST, HOST:PORT or HOST/PATH of a registry, without tag, for example registry.example.org/team"
    if scope.split("/")[0] in _HUB_NAMES:
        return "must be docker.io, the name of Docker Hub in image names"
    return ""


def signature_key_fault(text: str) -> tuple[str, str]:
    """Returns what is wrong with a public key for signatures of images and what to do, or ("", ""). Messages never repeat
    any part of the text."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    # Not only the first PEM block counts: the whole text is stored and written to all nodes, where every user can read it.
    if "PRIVATE KEY" in text:
        return "contains a private key", "give the public key alone and keep the private key secret"
    if not re.fullmatch(_ONE_PUBLIC_KEY, text.strip()):
        return "is not a public key in PEM format", "it begins with -----BEGIN PUBLIC KEY-----; for example cosign.pub"
    try:
        key = load_pem_public_key(text.strip().encode())
    except (ValueError, UnsupportedAlgorithm):
        return "is not a public key in PEM format", "it begins with -----BEGIN PUBLIC KEY-----; for example cosign.pub"
    if not isinstance(key, ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey | rsa.RSAPublicKey):
        return "is a public key that signatures of images do not use", "use an ECDSA, Ed25519 or RSA key"
    return "", ""
