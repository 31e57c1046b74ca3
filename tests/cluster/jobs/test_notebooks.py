"""A notebook on a real cluster is started, opened once, runs a cell that sees its GPU, and is stopped."""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from tests.cluster.lab import Lab


class Browser:
    """A browser that the notebook proxy has admitted. The origin's name is not resolved, because it is this
    computer."""

    def __init__(self, link: str) -> None:
        self.origin = "{0.scheme}://{0.netloc}".format(urlsplit(link))
        self.host, self.port = urlsplit(link).netloc, urlsplit(link).port
        self.http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", headers={"host": self.host}, timeout=240)
        self.first = self.open(link)
        self.base = self.first.headers.get("location", "").removesuffix("lab")
        self.cookie = self.first.headers.get("set-cookie", "").partition(";")[0]

    def open(self, link: str) -> httpx.Response:
        answer = self.http.get(link.removeprefix(self.origin))
        self.http.cookies.clear()  # tests send cookies explicitly
        return answer

    def ask(self, method: str, path: str, **body: Any) -> httpx.Response:
        headers = {"cookie": self.cookie, "origin": self.origin}
        return self.http.request(method, f"{self.base}{path}", headers=headers, **body)

    def run(self, kernel: str, code: str) -> str:
        """Runs a cell through the kernel's WebSocket and returns what it prints."""
        with socket.create_connection(("127.0.0.1", int(self.port or 0)), timeout=240) as sock:
            key = base64.b64encode(os.urandom(16)).decode()
            lines = [
                f"GET {self.base}api/kernels/{kernel}/channels HTTP/1.1", f"Host: {self.host}", f"Cookie: {self.cookie}",
                f"Origin: {self.origin}", "Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {key}",
                "Sec-WebSocket-Version: 13", "", "",
            ]  # fmt: skip
            sock.sendall("\r\n".join(lines).encode())
            stream = sock.makefile("rb")
            assert stream.readline().startswith(b"HTTP/1.1 101")
            while stream.readline().strip():
                pass
            number = os.urandom(8).hex()
            header = {"msg_id": number, "msg_type": "execute_request", "username": "", "session": "s", "version": "5.3"}
            content = {"code": code, "silent": False, "store_history": False, "allow_stdin": False}
            ask = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
            sock.sendall(_frame(json.dumps(ask).encode()))
            printed = ""
            while True:  # its output may come in pieces, mixed with the end of another cell
                document = json.loads(_read_frame(stream) or b"{}")
                if document.get("parent_header", {}).get("msg_id") != number:
                    continue
                kind, content = document["header"]["msg_type"], document["content"]
                if kind == "stream":
                    printed += content["text"]
                elif kind == "error":
                    return str(content)
                elif kind == "status" and content["execution_state"] == "idle":
                    return printed


def _frame(data: bytes) -> bytes:
    mask = os.urandom(4)
    size = struct.pack("!BBH", 0x81, 0x80 | 126, len(data))
    return size + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data))


def _read_frame(stream: Any) -> bytes:
    """Returns the next WebSocket message if it is text, else b""."""
    first, size = stream.read(2)
    size &= 0x7F
    if size > 125:
        size = int.from_bytes(stream.read(2 if size == 126 else 8), "big")
    data = bytes(stream.read(size))
    return data if first & 0x0F == 1 else b""


def test_notebook_link_works_once_and_its_kernel_sees_one_gpu_and_no_secrets(lab: Lab) -> None:
    link = lab.cli("notebook", "lab", "--gpus", "1").out.strip()
    notebook = next(one for one in lab.client.notebooks.list("lab") if one.mine)
    try:
        assert (notebook.state, notebook.simulated_gpus) == ("running", True)
        browser = Browser(link)
        assert browser.first.status_code == 303
        assert browser.open(link).status_code == 403, "a link works once"
        assert browser.http.get(f"{browser.base}lab").status_code == 401, "without the cookie nobody is let in"
        assert browser.host == f"n-{notebook.id}.notebooks.localhost:{browser.port}", "each has an origin to itself"
        elsewhere = {"cookie": browser.cookie, "host": browser.host.replace(notebook.id, "0" * 16)}
        assert browser.http.get(f"{browser.base}lab", headers=elsewhere).status_code == 400

        started = browser.ask("POST", "api/kernels", json={"name": "python3"})
        assert started.status_code == 201, started.text
        kernel = started.json()["id"]
        assert browser.run(kernel, "!nvidia-smi -L; echo $SLURM_JOB_ID").count("(simulated)") == 1

        # Neither Jupyter's secret nor the notebook's address is in the job's command lines or in what Slurm shows of it.
        words = browser.run(kernel, "print(__import__('subprocess').getoutput('ps -eo args'))")
        secret = lab.head("cat", f"{Path(notebook.log).parent}/secret", user=notebook.user).out
        assert "jupyter-lab" in words
        assert secret not in words
        assert notebook.id not in words + lab.client.jobs.get("lab", notebook.job_id).model_dump_json()
        assert notebook.id not in lab.head("scontrol", "show", "job", str(notebook.job_id)).out

        # The API accepts nothing from the notebook's page, whatever cookie it sends.
        url = lab.client.url
        cookie = _session(lab)
        for headers in ({"origin": browser.origin, "cookie": cookie}, {"cookie": browser.cookie}):
            refused = httpx.delete(f"{url}/api/v1/clusters/lab/jobs/{notebook.job_id}", headers=headers)
            assert refused.status_code in (401, 403), refused.text
        read = httpx.get(f"{url}/api/v1/clusters", headers={"origin": browser.origin, "cookie": cookie})
        assert "access-control-allow-origin" not in read.headers
        assert lab.state_of(notebook.job_id) == "RUNNING"
    finally:
        lab.client.notebooks.stop("lab", notebook.id)
    assert lab.wait_job(notebook.job_id, "CANCELLED", "COMPLETED")
    assert browser.ask("GET", "api/status").status_code in (401, 410, 503)


def _session(lab: Lab) -> str:
    """Returns the cookie of a browser that is signed in to the dashboard."""
    link = lab.client.tokens.sign_in_link().url
    return httpx.get(link, follow_redirects=False).headers["set-cookie"].partition(";")[0]
