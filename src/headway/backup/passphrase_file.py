"""The file with the passphrase of scheduled backups, `backup.key_file`."""

from __future__ import annotations

from pathlib import Path

from headway.errors import Refused


def read_passphrase(file: Path) -> str:
    """Returns the first line of a key file on the server's machine. Raises Refused."""
    try:
        first = file.read_text().strip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{file} can't be read: {error}", hint="backup.key_file names a file with a passphrase") from None
    if not first or len(first[0]) < 8:
        raise Refused(f"{file} holds no passphrase of 8 characters or more", hint="head -c 32 /dev/urandom | base64")
    return first[0]
