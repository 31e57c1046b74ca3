"""A file as it should be on a machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class File:
    """`text` is the whole content, or `data` where the content is binary. For a secret both are empty, and `secret`
    names the value that is inserted when the file is written."""

    text: str
    mode: int = 0o644
    owner: str = "root"
    group: str = "root"
    secret: str = ""  # "munge_key" | "jwt_key" | ...: never in a ChangeSet, log or answer
    data: bytes = b""
    block: bool = False  # Headway writes only its own block of lines; the rest belongs to the machine's owner

    @property
    def content(self) -> bytes:
        """The content as bytes."""
        return self.data or self.text.encode()

    @cached_property
    def digest(self) -> str:
        """sha256 of the content, in hex."""
        return hashlib.sha256(self.content).hexdigest()
