"""A file as it should be on a machine."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class File:
    """`text` is the whole content, or `data` where that is no text; for a secret both are empty and `secret` names the value
    to put there at write time."""

    text: str
    mode: int = 0o644
    owner: str = "root"
    group: str = "root"
    secret: str = ""  # "munge_key" | "jwt_key" | ...: never in a ChangeSet, log or answer
    data: bytes = b""
    block: bool = False  # lines of ours in a file that is its owner's otherwise

    @property
    def content(self) -> bytes:
        return self.data or self.text.encode()

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.content).hexdigest()
