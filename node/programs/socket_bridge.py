"""Connects standard input and output to a unix socket. Runs as root, because only root may open the socket.

socket_bridge.py PATH"""

from __future__ import annotations

import os
import socket
import sys
import threading


def main() -> None:
    there = socket.socket(socket.AF_UNIX)
    there.connect(sys.argv[1])

    def copy_answers() -> None:
        while data := there.recv(65536):
            os.write(1, data)
        os._exit(0)

    threading.Thread(target=copy_answers, daemon=True).start()
    while data := os.read(0, 65536):
        there.sendall(data)
    there.shutdown(socket.SHUT_WR)
    threading.Event().wait()


if __name__ == "__main__":
    main()
