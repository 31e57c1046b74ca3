"""A package index (PEP 503) of wheels that a test makes, for clusters that reach nothing else."""

from __future__ import annotations

import base64
import hashlib
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def make_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    needs: Sequence[str] = (),
    files: Mapping[str, str] | None = None,
    commands: Mapping[str, str] | None = None,
) -> Path:
    """Writes a wheel to the index folder and lists it there. `files`: texts of its modules by path; `commands`: entry
    points by name."""
    place = folder / "simple" / name
    place.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    requires = "".join(f"Requires-Dist: {one}\n" for one in needs)
    texts = {
        f"{name}/__init__.py": f"__version__ = {version!r}\n",
        **(files or {}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if commands:
        lines = "".join(f"{command} = {target}\n" for command, target in commands.items())
        texts[f"{info}/entry_points.txt"] = f"[console_scripts]\n{lines}"
    records = [f"{path},{_digest(text)},{len(text.encode())}" for path, text in texts.items()]
    texts[f"{info}/RECORD"] = "\n".join([*records, f"{info}/RECORD,,"]) + "\n"
    wheel = place / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in texts.items():
            archive.writestr(path, text)
    list_wheels(place)
    return wheel


def list_wheels(place: Path) -> None:
    """Writes the page of a package from the wheels in its folder."""
    links = (
        f'<a href="{one.name}#sha256={hashlib.sha256(one.read_bytes()).hexdigest()}">{one.name}</a>'
        for one in sorted(place.glob("*.whl"))
    )
    (place / "index.html").write_text("<!DOCTYPE html><html><body>" + "".join(links) + "</body></html>")


def _digest(text: str) -> str:
    found = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(found).rstrip(b"=").decode()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        clients.add(self.client_address[0])


clients: set[str] = set()  # addresses that have asked any index of this process


@contextmanager
def serve_index(folder: Path, address: str) -> Iterator[str]:
    """Serves the folder at this address of the host and yields the index's URL."""
    server = ThreadingHTTPServer((address, 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{address}:{server.server_address[1]}/simple/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
