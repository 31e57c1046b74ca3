"""Checks public SSH keys field by field, so that exactly one key and nothing else is installed."""

from __future__ import annotations

import base64
import binascii
import re

KEY_TYPES = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_FIELDS = {  # number of length-prefixed fields after the type
    "ssh-ed25519": 1,
    "ssh-rsa": 2,
    "ecdsa-sha2-nistp256": 2,
    "ecdsa-sha2-nistp384": 2,
    "ecdsa-sha2-nistp521": 2,
    "sk-ssh-ed25519@openssh.com": 2,
    "sk-ecdsa-sha2-nistp256@openssh.com": 3,
}
SMALLEST_RSA_BITS = 2048


def looks_private(text: str) -> bool:
    """Returns whether the text may be a private key; messages never repeat such text."""
    return "PRIVATE KEY" in text or text.lstrip().startswith(("-----BEGIN", "PuTTY-User-Key-File"))


def looks_like_path(text: str) -> bool:
    """Returns whether the text is the path of a key file rather than the key itself."""
    return text.startswith(("/", "~", "./", "../")) or (text.endswith(".pub") and " " not in text)


def key_fault(text: str) -> tuple[str, str]:
    """Returns what is wrong with a public key and what to do, or ("", ""). Messages never repeat any part of the text."""
    if looks_private(text):
        return "is a private key", "give the public key (ending in .pub) and keep the private key secret"
    if looks_like_path(text):
        return "is a path, not a public key", "paste the text of the .pub file"
    stripped = text.strip(" ")
    if any(ord(char) < 32 or ord(char) == 127 for char in stripped) or len(stripped.splitlines()) > 1:
        return "has a line break or another control character", "write one public key on one line"
    words = stripped.split(" ")
    if words[0] == "ssh-dss":
        return "is a DSA key, which SSH no longer accepts", "make a new one: ssh-keygen -t ed25519"
    if words[0] not in KEY_TYPES:
        if any(word in KEY_TYPES for word in words[1:]):
            return "has options before the key", "leave only the type, the key and a comment"
        return "is not a public SSH key", "a public key looks like: ssh-ed25519 AAAA... name"
    if len(words) < 2 or len(text) > 20000:
        return "is not a whole public SSH key", "copy the whole line of the .pub file"
    return _blob_fault(words[0], words[1])


def one_line(text: str) -> str:
    """Returns a checked key as it is installed: type, key, and the comment without unusual characters."""
    kind, blob, *comment = text.strip(" ").split(" ")
    kept = re.sub(r"[^A-Za-z0-9._@-]+", "-", " ".join(comment)).strip("-")[:64]
    return f"{kind} {blob} {kept}" if kept else f"{kind} {blob}"


def _blob_fault(kind: str, blob: str) -> tuple[str, str]:
    broken = ("is not a whole public SSH key", "copy the whole line of the .pub file")
    try:
        data = base64.b64decode(blob, validate=True)
    except (binascii.Error, ValueError):
        return broken
    fields = _fields(data)
    if fields is None or len(fields) != 1 + _FIELDS[kind]:
        return broken
    if fields[0] != kind.encode():
        return "names one key type and contains a key of another", "copy the whole line of the .pub file"
    if kind == "ssh-ed25519" and len(fields[1]) != 32:
        return broken
    if kind == "ssh-rsa" and int.from_bytes(fields[2], "big").bit_length() < SMALLEST_RSA_BITS:
        return f"is an RSA key of less than {SMALLEST_RSA_BITS} bits", "make a new one: ssh-keygen -t ed25519"
    return "", ""


def _fields(data: bytes) -> list[bytes] | None:
    fields = []
    while data:
        size = int.from_bytes(data[:4], "big")
        if len(data) < 4 + size:
            return None
        fields.append(data[4 : 4 + size])
        data = data[4 + size :]
    return fields
