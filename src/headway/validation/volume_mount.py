"""Syntax rules of volumes: the mount line `TYPE SOURCE [OPTIONS]`, and the mount point. `*_fault` return a fault as text."""

from __future__ import annotations

import re

from headway.validation.reserved_names import SYSTEM_PATHS
from headway.validation.syntax_rules import host_fault, path_fault

MOUNT_TEXT = re.compile(r"[A-Za-z0-9 _@%+=:,./~\[\]-]*")  # allows brackets for IPv6 addresses
_FS_TYPE = re.compile(r"[a-z][a-z0-9_]{0,31}(\.[a-z][a-z0-9_-]{0,31})?")
_BRACKETED = r"([A-Za-z0-9._-]+@)?\[[0-9a-fA-F:.]{2,45}\]:"
# No character with a meaning in shells or units
_MOUNT_WORD = re.compile(rf"({_BRACKETED})?[A-Za-z0-9._@:/,=+-]{{1,1024}}")


def mount_line_fault(line: str) -> tuple[str, str]:
    """Returns what is wrong with "TYPE SOURCE [OPTIONS]" and what to do, or ("", "")."""
    parts = line.split()
    example = "for example: nfs4 filer:/export/data rw,hard"
    if not 2 <= len(parts) <= 3:
        return "must be TYPE SOURCE, or TYPE SOURCE OPTIONS", example
    if not _FS_TYPE.fullmatch(parts[0]):
        return f"{parts[0]!r} is not a file system type", example
    for part in parts[1:]:
        if not _MOUNT_WORD.fullmatch(part) or part.startswith("-"):
            return f"{part!r} may have only letters, digits and . _ @ : / , = + -", example
    if parts[0] == "none" and not (len(parts) == 3 and {"bind", "rbind"} & set(parts[2].split(","))):
        return "type none needs the option bind", "for example: none /scratch/models bind"
    address = parts[1].partition("[")[2].partition("]")[0] if "[" in parts[1] else ""
    if address and host_fault(address):
        return f"{address} is not an IPv6 address", example
    if parts[0].startswith("nfs") and not address and parts[1].partition(":/")[0].count(":"):
        return (
            f"{parts[1]!r} has a colon in the server's address",
            "put an IPv6 address in brackets, as in [fd00::1]:/export",
        )
    return "", ""


def mount_fault(path: str) -> str:
    """Checks the mount point of a dataset or volume on the machines."""
    fault = path_fault(path)
    if fault:
        return fault
    if path == "/":
        return "can't be the root folder of the machines"
    for system in SYSTEM_PATHS:
        if path == system or path.startswith(f"{system}/"):
            return f"is in {system}, which belongs to the operating system"
        if system.startswith(f"{path.rstrip('/')}/"):
            return f"covers {system}, which belongs to the operating system"
    return ""
