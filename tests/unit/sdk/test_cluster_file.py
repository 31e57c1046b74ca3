"""The SDK inlines keys, paths and the catalogue into a cluster file, finds its server, and raises the server's error
classes."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import httpx
import pytest

from headway import paths
from headway.api.docs_page import PROBLEMS
from headway.api.http.error_handlers import problem_response
from headway.errors import (
    CommandFailed,
    Conflict,
    Fault,
    HeadwayError,
    InvalidSpec,
    NeedsConfirmation,
    NotAllowed,
    NotFound,
    NotSignedIn,
    Refused,
    TooManyAtOnce,
    Unreachable,
)
from headway.schemas.base import ErrorOut
from headway.schemas.submission.submissions import SubmitIn
from headway.sdk.client import Client, connect
from headway.sdk.cluster_file import load_document, private_key_file
from headway.sdk.errors import error_from_answer
from headway.sdk.process_liveness import process_start_time
from headway.sdk.server_address import find_server, is_root_server, start_command
from headway.server.state_files import write_client
from headway.services.error_report import error_out
from headway.validation.ssh_keys import key_fault

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8m1yvDOZ1uJ7m4w1Jb3m5b1m4w1Jb3m5b1m4w1Jb3m ann"


def write(folder: Path, text: str) -> Path:
    file = folder / "cluster.yaml"
    file.write_text(text)
    return file


def test_document_inlines_ssh_keys_and_makes_paths_absolute(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/one.pub").write_text(f"# mine\n{KEY}\n\n{KEY}2\n")
    (tmp_path / "bob.pub").write_text(KEY + "\n")
    file = write(
        tmp_path,
        f"name: lab\nssh_keys: [~/.ssh/one.pub, '{KEY}']\nusers:\n  bob: {{ssh_keys: [./bob.pub]}}\n"
        "storage:\n  datasets: [{name: tiny, path: ../data/tiny}, {name: abs, path: /srv/x}]\n",
    )
    document = load_document(file, config_dir=tmp_path / "config", home=home)
    assert document.spec["ssh_keys"] == [KEY, f"{KEY}2", KEY]
    assert document.spec["users"]["bob"]["ssh_keys"] == [KEY]
    paths = [d["path"] for d in document.spec["storage"]["datasets"]]
    assert paths == [str(tmp_path.parent / "data/tiny"), "/srv/x"]
    assert document.text == file.read_text()


def test_own_ssh_key_is_used_or_generated_once(tmp_path: Path) -> None:
    file = write(tmp_path, "name: lab\n")
    config, home = tmp_path / "config", tmp_path / "home"
    made = load_document(file, config_dir=config, home=home).spec["ssh_keys"]
    assert key_fault(made[0]) == ("", "")
    assert (config / "id_ed25519").stat().st_mode & 0o777 == 0o600
    assert load_document(file, config_dir=config, home=home).spec["ssh_keys"] == made
    assert private_key_file(config, home) == config / "id_ed25519"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_text("private")
    (home / ".ssh/id_ed25519.pub").write_text(KEY)
    assert load_document(file, config_dir=config, home=home).spec["ssh_keys"] == [KEY]


def test_reports_all_missing_and_wrong_key_files_at_once(tmp_path: Path) -> None:
    private = tmp_path / "id"
    private.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nsecretsecret\n")
    file = write(tmp_path, "name: lab\nssh_keys: [./none.pub, ./id]\nusers: {bob: {ssh_keys: [./no.pub]}}\n")
    with pytest.raises(InvalidSpec) as caught:
        load_document(file, config_dir=tmp_path, home=tmp_path)
    assert [fault.path for fault in caught.value.faults] == ["ssh_keys[0]", "ssh_keys[1]", "users.bob.ssh_keys[0]"]
    assert "secretsecret" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["ssh_keys: 5", "storage: []", "users: [a]", "storage: {datasets: {a: 1}}", "hosts: x"]
)
def test_malformed_fields_are_left_for_server_validation(tmp_path: Path, text: str) -> None:
    document = load_document(write(tmp_path, f"name: lab\n{text}\n"), config_dir=tmp_path, home=tmp_path)
    assert text.partition(":")[0] in document.spec


@pytest.mark.parametrize("text", ["", "\n", "# mine-8: {gpus: 8}\n", "---\n# none yet\n", "~\n"])
def test_empty_catalogue_file_gives_no_plans(tmp_path: Path, text: str) -> None:
    (tmp_path / "catalogue.yaml").write_text(text)
    assert load_document(write(tmp_path, "name: lab\n"), config_dir=tmp_path, home=tmp_path).catalogue == {}


@pytest.mark.parametrize("text", ["a: [\n", "- a\n", "text\n", "a: 1\na: 2\n"])
def test_catalogue_errors_name_catalogue_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "catalogue.yaml").write_text(text)
    with pytest.raises(InvalidSpec) as caught:
        load_document(write(tmp_path, "name: lab\n"), config_dir=tmp_path, home=tmp_path)
    assert caught.value.message.startswith(f"your catalogue {tmp_path / 'catalogue.yaml'} has 1 fault:\n  line ")
    assert "cluster file" not in caught.value.message


def test_document_includes_user_catalogue(tmp_path: Path) -> None:
    (tmp_path / "catalogue.yaml").write_text("mine-8: {gpus: 8, cpus: 4, memory_mib: 4096}\n")
    document = load_document(write(tmp_path, "name: lab\n"), config_dir=tmp_path, home=tmp_path)
    assert document.catalogue == {"mine-8": {"gpus": 8, "cpus": 4, "memory_mib": 4096}}


def test_unreadable_cluster_file_errors_are_helpful(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="headway init"):
        load_document(tmp_path / "none.yaml")
    with pytest.raises(Refused, match="folder"):
        load_document(tmp_path)
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSpec):
        load_document(tmp_path / "binary")
    with pytest.raises(InvalidSpec, match="larger than 4 MiB"):
        load_document("/dev/zero")  # has no end
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refused, match="pipe without a writer"):
        load_document(tmp_path / "pipe")


def test_reads_cluster_file_from_pipe(tmp_path: Path) -> None:
    ours, theirs = os.pipe()

    def write() -> None:
        os.write(theirs, b"name: lab\n")
        os.close(theirs)

    asked = threading.Timer(0.05, write)
    asked.start()
    try:
        assert load_document(f"/proc/self/fd/{ours}", config_dir=tmp_path, home=tmp_path).text == "name: lab\n"
    finally:
        asked.join()
        os.close(ours)


ERRORS = [NotSignedIn, NotAllowed, NotFound, Conflict, NeedsConfirmation, Refused, Unreachable, TooManyAtOnce]


@pytest.mark.parametrize("cls", ERRORS)
def test_client_raises_same_error_class_as_server(cls: type[HeadwayError]) -> None:
    sent = problem_response(cls.http_status, error_out(cls("what", hint="do")))
    server = httpx.MockTransport(lambda _: httpx.Response(sent.status_code, content=bytes(sent.body)))
    with Client("http://server", "t", transport=server) as client, pytest.raises(cls) as caught:
        client.me()
    assert type(caught.value) is cls
    assert (caught.value.message, caught.value.hint) == ("what", "do")
    assert PROBLEMS[cls.kind][0] == sent.status_code


def test_faults_and_command_failures_survive_serialization() -> None:
    spec = error_from_answer(error_out(InvalidSpec([Fault("a.b", "bad", "do c")], "the pipeline file")))
    assert isinstance(spec, InvalidSpec)
    assert spec.faults == (Fault("a.b", "bad", "do c"),)
    assert str(spec) == "the pipeline file has 1 fault:\n  a.b: bad; do c"
    sent = CommandFailed(["sbatch", "x"], 2, "no partition", where="lab-head")
    command = error_from_answer(error_out(sent))
    assert isinstance(command, CommandFailed)
    assert str(command) == str(sent)
    newer = error_from_answer(ErrorOut(kind="of_the_future", message="m"))
    assert type(newer) is HeadwayError


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


def test_client_fails_over_to_next_server_with_same_idempotency_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_STATE", str(tmp_path))
    one, two = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    urls = [f"http://127.0.0.1:{server.getsockname()[1]}" for server in (one, two)]
    monkeypatch.setenv("HEADWAY_URL", f" {urls[0]} , {urls[1]},")
    keys: list[str] = []

    def far(request: httpx.Request) -> httpx.Response:
        keys.append(request.headers["idempotency-key"])
        if str(request.url).startswith(urls[0]):
            one.close()  # it is killed under the request
            raise httpx.RemoteProtocolError("gone", request=request)
        return httpx.Response(201, json={"job_id": 7, "cluster": "lab", "user": "ann", "workdir": "~"})

    url, token, refresh = find_server()
    with two, Client(url, token, refresh=refresh, transport=httpx.MockTransport(far)) as client:
        assert client.url == urls[0]
        assert client.jobs.sbatch("lab", SubmitIn()).job_id == 7
        assert client.url == urls[1]
    assert len(keys) == 2
    assert len(set(keys)) == 1


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
    import httpx

    answers = httpx.MockTransport(lambda _: httpx.Response(status, content=body))
    for ask in (lambda c: c.clusters.list(), Client.me):
        with pytest.raises(Refused, match=why), Client("http://far:1", "t", transport=answers) as client:
            ask(client)


def test_proxy_503_raises_unreachable() -> None:
    """Who waits for a job goes on over it."""
    import httpx

    answers = httpx.MockTransport(lambda _: httpx.Response(503, content=b"<html>no upstream"))
    with pytest.raises(Unreachable, match="but HTTP 503"), Client("http://far:1", "t", transport=answers) as client:
        client.clusters.list()
