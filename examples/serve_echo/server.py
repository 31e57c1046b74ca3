"""A small HTTP server for `headway serve`: answers each request with its path and the number of the replica.

GET /health       200 as soon as the server listens
GET /wait?s=1.5   answers after so many seconds
GET /stream?n=5   sends a line a second
Others            answer at once"""

import json
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit


class Handler(BaseHTTPRequestHandler):
    """Answers requests."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet: two would wait 40 ms for the client's delayed acknowledgement

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/stream":
            self.stream(int(asked.get("n", "5")))
            return
        if url.path == "/wait":
            time.sleep(float(asked.get("s", "1")))
        self.answer({"replica": os.environ.get("HEADWAY_SERVE_REPLICA", ""), "path": self.path})

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", "0"))
        self.answer({"replica": os.environ.get("HEADWAY_SERVE_REPLICA", ""), "bytes": len(self.rfile.read(size))})

    def answer(self, fields: dict[str, object]) -> None:
        body = json.dumps(fields).encode() + b"\n"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, lines: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(lines):
            line = f"data: {number}\n\n".encode()
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()
            time.sleep(1)
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *words: object) -> None:
        """Logs no requests."""


class Server(ThreadingHTTPServer):
    """Accepts many connections at once."""

    request_queue_size = 128


if __name__ == "__main__":
    Server(("0.0.0.0", int(sys.argv[1])), Handler).serve_forever()
