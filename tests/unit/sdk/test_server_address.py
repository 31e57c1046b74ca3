"""The server that the client uses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import httpx
import pytest

from headway import paths
from headway.errors import (
    NotFound,
    Refused,
    Unreachable,
)
from headway.sdk.client import Client, connect
from headway.sdk.process_liveness import process_start_time
from headway.sdk.server_address import find_server, is_root_server, start_command
from headway.server.state_files import write_client


def test_missing_server_error_explains_how_to_start_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_URL", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(Unreachable) as caught:
        connect(tmp_path)
    assert str(caught.value) == "no server\n  headway server start"
    with pytest.raises(Unreachable, match="headway server start"), Client("http://127.0.0.1:9", "t") as client:
        client.me()
    with pytest.raises(NotFound):
        Client("http://127.0.0.1:9", "t").clusters.get("")


def test_server_started_with_sudo_is_found_without_sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEADWAY_URL", "HEADWAY_STATE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(paths, "ROOT_STATE", tmp_path / "root")
    file = tmp_path / "headway" / paths.SUDO_FILE
    file.parent.mkdir()
    pid = os.getpid()
    lives = {"url": "http://127.0.0.1:7001", "token": "hw_a", "pid": pid, "started": process_start_time(pid)}
    ended = {**lives, "url": "http://127.0.0.1:7002", "started": "1"}
    file.write_text(json.dumps({str(tmp_path / "root"): lives, str(tmp_path / "lab"): ended}))
    assert connect().url == "http://127.0.0.1:7001"
    for folder in (tmp_path / "lab", tmp_path / "another"):
        monkeypatch.setenv("HEADWAY_STATE", str(folder))
        with pytest.raises(Unreachable, match="no server"):
            connect()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path / "lab"))
    with pytest.raises(Unreachable) as caught:
        connect()
    assert caught.value.hint == f"sudo HEADWAY_STATE={tmp_path / 'lab'} headway server start"
    monkeypatch.delenv("HEADWAY_STATE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    own = tmp_path / "data" / "headway"
    own.mkdir(parents=True)
    write_client(own, "http://127.0.0.1:7003", "hw_own")
    assert (connect().url, is_root_server(), start_command()) == (lives["url"], True, "sudo headway server start")
    file.write_text(json.dumps({str(tmp_path / "root"): ended}))
    assert (is_root_server(), start_command()) == (False, "headway server start"), "they have one of their own"
    (own / paths.CLIENT_FILE).unlink()
    assert (is_root_server(), start_command()) == (True, "sudo headway server start")
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path / "lab"))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(Unreachable) as caught:
        connect()
    assert caught.value.hint == "headway server start"
    file.write_text("[]")
    monkeypatch.delenv("HEADWAY_STATE")
    with pytest.raises(Unreachable, match="no server"):
        connect()


def test_headway_url_selects_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path))
    monkeypatch.setenv("HEADWAY_URL", "http://far:1/")
    monkeypatch.setenv("HEADWAY_TOKEN", "hw_t")
    assert connect().url == "http://far:1"
    monkeypatch.setenv("HEADWAY_URL", "http://127.0.0.1:9")
    with pytest.raises(Unreachable, match="check HEADWAY_URL"), connect() as client:
        client.me()


def test_local_token_is_sent_only_to_own_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path))
    monkeypatch.delenv("HEADWAY_TOKEN", raising=False)
    (tmp_path / paths.CLIENT_FILE).write_text(json.dumps({"url": "http://127.0.0.1:7878", "token": "hw_own"}))
    for url, token in (
        ("http://127.0.0.1:7878/", "hw_own"),
        ("http://localhost:7878", "hw_own"),
        ("http://localhost.example.org:7878", ""),
        ("http://colleague:7878", ""),
        ("http://two:7878,http://127.0.0.1:7878", "hw_own"),  # said to be one
    ):
        monkeypatch.setenv("HEADWAY_URL", url)
        assert find_server()[1] == token
    (tmp_path / paths.SERVER_FILE).write_text(json.dumps({"url": "http://127.0.0.1:9001"}))
    monkeypatch.setenv("HEADWAY_URL", "http://127.0.0.1:9001")
    assert find_server()[1] == "hw_own"


@pytest.mark.parametrize(
    "url", ["garbage", "ftp://x", "http://", "http://h:99999", "http://[::1", "http://h\u00e9:1", "http://h:x"]
)
def test_refuses_invalid_headway_url(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_URL", url)
    with pytest.raises(Refused, match="HEADWAY_URL is not a valid address"):
        connect()


@pytest.mark.parametrize("token", ["a\nb", "h\u00e9"])
def test_refuses_invalid_token_without_showing_it(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HEADWAY_TOKEN", token)
    with pytest.raises(Refused, match="HEADWAY_TOKEN is not a valid token") as caught:
        connect()
    assert token not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (200, b"<html>hello</html>", "not a Headway server"),
        (404, b"<html>\n nothing</html>", "no Headway server answered, but HTTP 404: <html> nothing</html>"),
        (200, b'{"other": "shape"}', "this version of headway can't read"),
        (200, b"[1]", "this version of headway can't read"),
        (500, b'{"detail": 1}', "no Headway server answered, but HTTP 500"),
    ],
)
def test_distinguishes_foreign_server_from_incompatible_version(status: int, body: bytes, why: str) -> None:

    answers = httpx.MockTransport(lambda _: httpx.Response(status, content=body))
    for ask in (lambda c: c.clusters.list(), Client.me):
        with pytest.raises(Refused, match=why), Client("http://far:1", "t", transport=answers) as client:
            ask(client)
