"""Sends lines to a syslog server: by UDP, TCP, TLS or a Unix socket."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterable
from logging.handlers import SysLogHandler

from headway.services.server_settings import SyslogServer

TIMEOUT_S = 10.0
# Bytes of a line in a datagram. IPv4 carries 65,507 with the header of the message; rsyslog takes 8 KiB by default.
MOST_DATAGRAM = 60_000
_CUT = " [cut]"


def send_lines(server: SyslogServer, program: str, facility: int, lines: Iterable[tuple[int, str]]) -> None:
    """Sends lines of (level of logging, text) over one connection, each as `PROGRAM: TEXT`. UDP and /dev/log confirm nothing, and
    take only the first MOST_DATAGRAM bytes of a line. Raises OSError; the line that was taken from `lines` last is not sent."""
    connection = _Connection(server, program, facility)
    try:
        for level, line in lines:
            text = line if server.transport in ("tcp", "tls") else _cut(line)
            values = {"name": program, "levelno": level, "levelname": logging.getLevelName(level), "msg": text}
            connection.emit(logging.makeLogRecord(values))
    finally:
        connection.close()


def _cut(line: str) -> str:
    """Returns the line, without its end if a datagram can't hold it."""
    data = line.encode()
    if len(data) <= MOST_DATAGRAM:
        return line
    return data[: MOST_DATAGRAM - len(_CUT)].decode(errors="ignore") + _CUT


class _Connection(SysLogHandler):
    """The standard library's handler, which raises errors and ends messages over TCP and TLS with a newline (RFC 6587, 3.4.2)."""

    append_nul = False

    def __init__(self, server: SyslogServer, program: str, facility: int) -> None:
        self.ident = f"{program}: "
        self._stream = (server.host, server.port) if server.transport in ("tcp", "tls") else None
        self._tls = server.transport == "tls"
        super().__init__(
            server.host if server.transport == "unix" else (server.host, server.port),
            facility,
            {"unix": None, "udp": socket.SOCK_DGRAM}.get(server.transport, socket.SOCK_STREAM),
        )

    def createSocket(self) -> None:  # noqa: N802  # a name of logging
        """Connects; over TCP within TIMEOUT_S, where the standard library would wait for minutes. Raises ssl.SSLError if the
        server's certificate is not of an authority that this machine knows, or not for its host."""
        if self._stream:
            self.unixsocket = False
            self.socket = socket.create_connection(self._stream, TIMEOUT_S)
            if self._tls:
                self.socket = ssl.create_default_context().wrap_socket(self.socket, server_hostname=self._stream[0])
        else:
            super().createSocket()

    def format(self, record: logging.LogRecord) -> str:
        """Returns the message, which holds no line break."""
        return super().format(record) + ("\n" if self._stream else "")

    def handleError(self, _: logging.LogRecord) -> None:  # noqa: N802  # a name of logging
        """Raises the error that is being handled: the line is sent again later."""
        raise
