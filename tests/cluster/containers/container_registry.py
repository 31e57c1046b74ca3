"""A real container registry for tests: Debian's docker-registry with TLS and a password, on the lab's own network."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / "docker-registry"
USER = "reader"
_CONFIG = """\
version: 0.1
log: {{level: info, accesslog: {{disabled: false}}}}
storage: {{filesystem: {{rootdirectory: {folder}/data}}}}
http: {{addr: "{host}", secret: {secret}, tls: {{certificate: {folder}/cert.pem, key: {folder}/key.pem}}}}
auth: {{htpasswd: {{realm: tests, path: {folder}/htpasswd}}}}
"""


@dataclass
class Registry:
    """A running registry. `host` is ADDRESS:PORT as nodes reach it."""

    host: str
    password: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def authority(self) -> str:
        """Returns the certificate with which clients trust this registry."""
        return (self.folder / "cert.pem").read_text()

    def asked(self, *words: str) -> int:
        """Returns how many lines of the access log contain all these words."""
        return sum(all(word in line for word in words) for line in (self.folder / "log").read_text().splitlines())

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Freezes the registry: it accepts connections and answers none."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)


def program() -> str:
    """Returns the path of docker-registry, installed or unpacked by tools/setup.py."""
    found = shutil.which("docker-registry") or CACHE / "usr/bin/docker-registry"
    assert Path(found).exists(), "docker-registry is missing: python3 tools/setup.py --for test"
    return str(found)


@contextmanager
def serve(address: str, folder: Path) -> Iterator[Registry]:
    """Runs a registry on this address of the host until the context ends."""
    with socket.socket() as free:
        free.bind((address, 0))
        host = f"{address}:{free.getsockname()[1]}"
    password = secrets.token_urlsafe(12)
    salt = "$2b$05$" + secrets.token_hex(11)
    hashed = subprocess.run(
        ["perl", "-e", "chomp(@l = <STDIN>); print crypt($l[0], $l[1])"],
        input=f"{password}\n{salt}\n", capture_output=True, text=True, check=True, timeout=240,
    ).stdout  # fmt: skip
    (folder / "htpasswd").write_text(f"{USER}:{hashed}\n")
    (folder / "config.yml").write_text(_CONFIG.format(folder=folder, host=host, secret=secrets.token_hex(8)))
    subject = ["-subj", "/CN=registry", "-addext", f"subjectAltName=IP:{address}"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-keyout", "key.pem", "-out", "cert.pem", *subject],
        cwd=folder, check=True, capture_output=True, timeout=240,
    )  # fmt: skip
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [program(), "serve", str(folder / "config.yml")], stdout=log, stderr=log, env={"PATH": os.environ["PATH"]}
        )
    try:
        _wait(process, host, folder)
        yield Registry(host, password, folder, process)
    finally:
        process.kill()
        process.wait()


def _wait(process: subprocess.Popen[bytes], host: str, folder: Path) -> None:
    address, _, port = host.rpartition(":")
    ends = time.monotonic() + 60
    while True:
        assert process.poll() is None, (folder / "log").read_text()[-600:]
        try:
            socket.create_connection((address, int(port)), timeout=5).close()
            return
        except OSError:
            assert time.monotonic() < ends, "the registry does not listen"
            time.sleep(0.05)
