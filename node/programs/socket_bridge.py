"""Connects standard input and output to a Unix socket, or to a port of this machine's loopback address. Runs as root,
because other users may not open the socket or port.

socket_bridge.py PATH|PORT"""

from __future__ import annotations

import os
import socket
import sys
import threading


def main() -> None:
    goal = sys.argv[1]
    if goal.isdecimal():
        there = socket.create_connection(("127.0.0.1", int(goal)))
    else:
        there = socket.socket(socket.AF_UNIX)
        there.connect(goal)

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
