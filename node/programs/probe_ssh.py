"""Ends with 0 if an SSH server sends its banner, otherwise with 1. The kernel accepts connections for a stopped program
too, so only the banner counts.

    probe_ssh.py ADDRESS PORT"""

from __future__ import annotations

import socket
import sys

ANSWER_S = 4.0


def main() -> None:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=ANSWER_S) as link:
        link.settimeout(ANSWER_S)
        sys.exit(0 if link.recv(4) == b"SSH-" else 1)


if __name__ == "__main__":
    main()
