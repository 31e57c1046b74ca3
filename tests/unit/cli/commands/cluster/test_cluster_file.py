"""init, schema, doctor, image and version work without a server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from headway import __version__
from headway.domain.machine import Gap
from headway.errors import HeadwayError, NotSignedIn, Refused, Unreachable
from headway.images.local_images import ImageInfo
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture


def test_init_never_overwrites_an_existing_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli("init", "mine").code == 0
    text = Path("cluster.yaml").read_text()
    assert "name: mine" in text
    Path("cluster.yaml").write_text("precious")
    again = cli("init", "mine")
    assert (again.code, Path("cluster.yaml").read_text()) == (1, "precious")
    assert "cluster.yaml already exists" in again.err
    assert cli("init", "mine", "-f", "-").out == text


@pytest.mark.parametrize("name", ["Bad Name", "1x", "x\ny", "--"])
def test_init_refuses_an_invalid_cluster_name(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("init", "--", name)
    assert done.code == 2
    assert done.err.startswith("error: ")
    assert not list(tmp_path.iterdir())


def test_init_reports_a_missing_folder(cli: Cli, tmp_path: Path) -> None:
    done = cli("init", "-f", str(tmp_path / "none/cluster.yaml"))
    assert done.code == 1
    assert done.err == f"error: {tmp_path}/none/cluster.yaml: no such file or directory\n"


def test_schema_prints_a_json_schema(cli: Cli) -> None:
    schema = json.loads(cli("schema").out)
    assert {"name", "plan", "nodes"} <= set(schema["properties"])


@pytest.mark.parametrize(
    ("gaps", "code", "said"),
    [
        ((), 0, "ok    this machine can run local clusters\n"),
        ((Gap("inotify is low", "sysctl x", fatal=False),), 0, "warn  inotify is low\n      sysctl x\n"),
        ((Gap("podman is missing", "apt install podman"),), 1, "FAIL  podman is missing\n      apt install podman\n"),
    ],
)
def test_doctor_reports_host_gaps_and_fails_on_fatal_ones(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, gaps: tuple[Gap, ...], code: int, said: str
) -> None:
    monkeypatch.setattr("headway.providers.local.preflight.host_gaps", lambda *_, **__: gaps)
    assert (cli("doctor").code, cli("doctor").out) == (code, said)
    assert len(json.loads(cli("doctor", "-o", "json").out)) == len(gaps)


def test_image_ls_marks_outdated_and_unused_images(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    used = ImageInfo("debian13", "localhost/x:1", "id", "abc", 1700, "2026-01-01", "24.11", current=False, machines=5)
    unused = replace(used, tag="localhost/x:2", machines=0)

    async def found() -> tuple[ImageInfo, ...]:
        return (used, unused)

    monkeypatch.setattr("headway.images.local_images.list_images", found)
    first, second = cli("image", "ls").out.splitlines()[1:]
    assert ("old inputs" in first, "unused" in second) == (True, True)
    rows = json.loads(cli("image", "ls", "-o", "json").out)
    assert [(row["current"], row["machines"]) for row in rows] == [(False, 5), (False, 0)]


def test_image_rm_requires_the_unused_option_alone(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def removed() -> tuple[str, ...]:
        return ("localhost/x:2",)

    monkeypatch.setattr("headway.images.local_images.remove_unused_images", removed)
    assert cli("image", "rm", "--unused").out == "removed localhost/x:2\n"
    for words in ((), ("debian13", "--unused")):
        refused = cli("image", "rm", *words)
        assert (refused.code, "--unused" in refused.err) == (2, True)


def test_version_works_without_a_server(cli: Cli) -> None:
    cli.api.on("server", Unreachable("no server"))
    assert cli("version").out.endswith("server  none in reach\n")
    assert json.loads(cli("version", "-o", "json").out)["server"] is None


@pytest.mark.parametrize(
    "error",
    [NotSignedIn("this token is not known", hint="headway token create"), Refused("the server answers in another way")],
)
def test_version_reports_url_and_error_of_a_refusing_server(cli: Cli, error: HeadwayError) -> None:
    cli.api.on("server", error)
    done = cli("version")
    assert (done.code, done.out.splitlines()[1:]) == (error.exit_code, [f"server  at {cli.api.url}"])
    assert done.err.startswith(f"error: {error.message}\n")
    told = cli("version", "-o", "json")
    assert (told.code, json.loads(told.out)) == (error.exit_code, {"client": __version__, "server": None})
    cli.api.on("server", Unreachable("no server at http://far:1"))
    assert cli("version").out.endswith("server  none in reach: no server at http://far:1\n")
