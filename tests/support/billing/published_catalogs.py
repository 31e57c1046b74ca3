"""An HTTP server on loopback that publishes catalogues of prices as gpuhunt does."""

from __future__ import annotations

import io
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HEADER = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,"
    "gpu_vendor,flags,cpu_arch,provider_data"
)
VERSION = "20261120-77"


def catalog(*rows: str) -> str:
    """Returns the CSV text of a catalogue."""
    return "\n".join([HEADER, *rows]) + "\n"


def packed(cloud: str, text: str) -> bytes:
    """Returns the catalogue as the zip file that is published."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{cloud}.csv", text)
    return out.getvalue()


@contextmanager
def published(files: dict[str, bytes]) -> Iterator[str]:
    """Yields the address of a server that answers these paths, and 404 for others."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = files.get(self.path.lstrip("/"))
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def files_of(cloud: str, text: str, version: str = VERSION) -> dict[str, bytes]:
    """Returns the two files that are published of a cloud."""
    return {f"{cloud}/version": f"{version}\n".encode(), f"{cloud}/{version}/catalog.zip": packed(cloud, text)}
