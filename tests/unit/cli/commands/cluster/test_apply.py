"""plan, apply and down show the right changes, ask when they must, and end with the right code."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headway import paths
from headway.cli.output import changeset_text as cs
from headway.cli.output.terminal import Terminal
from headway.errors import Conflict, NotFound, Refused, Unreachable
from headway.schemas.base import ErrorOut, FaultOut
from headway.schemas.clusters import ChangeOut, ChangeSetOut
from headway.schemas.operations import EventOut
from headway.schemas.server import MeOut
from headway.sdk.client import connect
from headway.sdk.process_liveness import process_start_time
from headway.server.state_files import write_client
from tests.support.cli_fakes import Cli, change, cli, cluster, event, operation

__all__ = ["cli"]  # a fixture

MANY = [
    change("machine.create", "lab-1-1", "lab-1-1"),
    change("machine.create", "lab-1-2", "lab-1-2"),
    change("file.write", "lab-head", "/etc/slurm/slurm.conf", "reconfigure", diff=["-A=1", "+A=2"]),
]
HARD = change("machine.delete", "lab-1-4", "lab-1-4", "jobs end or are requeued", why="4 nodes become 3")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "cluster.yaml"
    path.write_text("name: lab\nplan: h100-8\nnodes: 4\n")
    return str(path)


def changes(*found: ChangeOut, disturbing: int = 0, **others: Any) -> ChangeSetOut:
    return ChangeSetOut(cluster="lab", changes=list(found), disturbing=disturbing, digest="d1", **others)


def ready(cli: Cli, plan: ChangeSetOut) -> None:
    api = cli.api
    api.on("me", MeOut(person="alice", role="admin", version="1")).on("clusters.plan", plan)
    api.on("clusters.apply", operation()).on("clusters.get", cluster()).on("operations.list", [])
    api.on("operations.events", lambda *_, **__: iter([event(1, "lab-1-2", "slurmd is up", at=1012.34)]))
    api.on("operations.get", operation("done", finished_at=1020.0))


def test_apply_prints_plan_and_events_and_reports_ready(cli: Cli, file: str) -> None:
    ready(cli, changes(*MANY, price_usd_per_hour="156.00"))
    done = cli("apply", file)
    assert (done.code, done.err) == (0, "")
    assert "lab: 3 changes, 156.00 USD an hour" in done.out
    assert "lab-1-[1-2]" in done.out
    assert "   12.3s  lab-1-2         slurmd is up\n" in done.out
    assert "lab is ready in 20.0 s" in done.out
    ((args, kwargs),) = cli.api.named("clusters.apply")
    assert args[0].spec["name"] == "lab"
    assert kwargs == {"digest": "d1", "confirmed": False, "deadline_s": None}


def test_apply_without_changes_says_why_and_sends_no_apply(cli: Cli, file: str) -> None:
    ready(cli, changes(why_empty="everything is as the file says"))
    done = cli("apply", file)
    assert done.code == 0
    assert done.out == "lab: nothing to change: everything is as the file says\n"
    assert not cli.api.named("clusters.apply")


@pytest.mark.parametrize("known", [cluster(state="failed"), NotFound("no cluster 'lab'")])
def test_empty_plan_is_applied_for_a_failed_or_unknown_cluster(cli: Cli, file: str, known: object) -> None:
    ready(cli, changes(why_empty="everything is as the file says"))
    cli.api.on("clusters.get", known)
    done = cli("apply", file)
    assert done.code == 0
    assert "lab is ready" in done.out
    assert cli.api.named("clusters.apply")


def test_empty_plan_is_applied_while_a_scale_operation_runs(cli: Cli, file: str) -> None:
    ready(cli, changes(why_empty="everything is as the file says"))
    cli.api.on("operations.list", [operation("running", kind="scale")])
    assert cli("apply", file).code == 0
    assert cli.api.named("clusters.apply")


def test_apply_follows_the_operation_that_continues_it(cli: Cli, file: str) -> None:
    ready(cli, changes(*MANY))
    answers = iter([operation("done", kept=["op-2"]), operation("running"), operation("done", finished_at=1020.0)])
    cli.api.on("operations.get", lambda _: next(answers))
    done = cli("apply", file)
    assert (done.code, "it continues as operation op-2" in done.err) == (0, True)
    assert "lab is ready" in done.out


def test_apply_of_a_disturbing_change_requires_yes(cli: Cli, file: str) -> None:
    ready(cli, changes(*MANY, HARD, disturbing=1))
    done = cli("apply", file)
    assert done.code == 3
    assert "machine.delete on lab-1-4: jobs end or are requeued (4 nodes become 3)" in done.out
    assert done.err == "error: 1 change would disturb jobs or sessions\n  use --yes to confirm without a prompt\n"
    assert not cli.api.named("clusters.apply")

    assert cli("apply", file, "--yes").code == 0
    assert cli.api.named("clusters.apply")[0][1] == {"digest": "d1", "confirmed": True, "deadline_s": None}


@pytest.mark.parametrize(("answer", "code", "calls"), [(b"y\n", 0, 1), (b"n\n", 1, 0), (b"\n", 1, 0)])
def test_apply_on_a_terminal_asks_for_confirmation(cli: Cli, file: str, answer: bytes, code: int, calls: int) -> None:
    ready(cli, changes(HARD, disturbing=1))
    done = cli("apply", file, stdin=answer, terminal=True)
    assert done.code == code
    assert "Continue?" in done.out
    assert len(cli.api.named("clusters.apply")) == calls


def test_apply_prints_only_the_first_line_of_an_event(cli: Cli, file: str) -> None:
    ready(cli, changes(*MANY))
    cli.api.on(
        "operations.events", lambda *_, **__: iter([event(1, "lab-1-2", "slurmd failed\nits journal", level="error")])
    )
    done = cli("apply", file)
    assert " error: slurmd failed\n" in done.out
    assert "its journal" not in done.out


def test_plan_and_dry_run_print_changes_without_applying(cli: Cli, file: str) -> None:
    ready(cli, changes(*MANY, HARD, disturbing=1))
    shown = cli("plan", file)
    assert shown.code == 0
    assert shown.out == cli("apply", "--dry-run", file).out
    assert not cli.api.named("clusters.apply")
    assert "+A=2" not in shown.out
    assert "+A=2" in cli("plan", "--diff", file).out
    assert json.loads(cli("plan", "-o", "json", file).out)["digest"] == "d1"


def test_plan_prints_warnings_first(cli: Cli, file: str) -> None:
    ready(cli, changes(*MANY, warnings=[FaultOut(path="nodes", message="many")]))
    assert cli("plan", file).out.splitlines()[0] == "warning: nodes: many"


def test_apply_json_output_is_only_the_operation(cli: Cli, file: str) -> None:
    ready(cli, changes(*MANY))
    assert json.loads(cli("apply", file, "-o", "json").out)["state"] == "done"


def test_apply_json_output_is_an_operation_even_without_changes(cli: Cli, file: str) -> None:
    ready(cli, changes(why_empty="everything is as the file says"))
    document = json.loads(cli("apply", file, "-o", "json").out)
    assert (document["state"], document["kind"], document["cluster"], document["id"]) == ("done", "apply", "lab", "")
    assert document.keys() == json.loads(operation("done").model_dump_json()).keys()
    assert not cli.api.named("clusters.apply")


@pytest.mark.parametrize(
    ("kind", "kept", "out"),
    [
        ("backup", ["/b/lab.headway-backup"], "the backup of lab is complete in 20.0 s\n  /b/lab.headway-backup\n"),
        ("dataset", ["/datasets/tiny/1"], "the dataset of lab is complete in 20.0 s\n  /datasets/tiny/1\n"),
        ("rotate", [], "the key of lab is replaced in 20.0 s\n"),
        ("restore", [], "lab is restored in 20.0 s\n"),
        ("scale", [], "lab is scaled in 20.0 s\n"),
        ("down", ["/data/lab/home"], "lab is down in 20.0 s\n  /data/lab/home\n"),
    ],
)
def test_following_an_operation_prints_the_summary_of_its_kind(cli: Cli, kind: str, kept: list[str], out: str) -> None:
    cli.api.on("operations.events", lambda *_, **__: iter(()))
    cli.api.on("operations.get", operation("done", kind=kind, kept=kept, finished_at=1020.0))
    done = cli("apply", "--follow", "op1")
    assert (done.code, done.out) == (0, out)


def test_failed_apply_exits_with_the_error_of_the_operation(cli: Cli, file: str) -> None:
    ready(cli, changes(*MANY))
    failed = operation("failed", error=ErrorOut(kind="unreachable", message="lab-1-2 never booted", hint="look"))
    cli.api.on("operations.get", failed)
    done = cli("apply", file)
    assert (done.code, done.err) == (7, "error: lab-1-2 never booted\n  look\n")


def test_apply_exits_with_conflict_while_another_operation_runs(cli: Cli, file: str) -> None:
    ready(cli, changes(*MANY))
    cli.api.on("clusters.apply", Conflict("bob applies to lab", hint="wait"))
    assert cli("apply", file).code == 6


def test_interrupted_apply_says_how_to_follow_the_operation(cli: Cli, file: str) -> None:
    ready(cli, changes(*MANY))

    def interrupted(*_: Any, **__: Any) -> Iterator[EventOut]:
        yield event(1, "machines", "creating")
        raise KeyboardInterrupt

    cli.api.on("operations.events", interrupted)
    done = cli("apply", file)
    assert done.code == 130
    assert "the apply of lab continues on the server" in done.err
    assert "headway apply --follow op1" in done.err
    assert "headway down lab" in done.err

    ready(cli, changes())
    again = cli("apply", "--follow", "op1")
    assert again.code == 0
    assert "lab is ready" in again.out


def test_apply_starts_a_local_server_if_none_runs(cli: Cli, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ready(cli, changes(why_empty="it is so"))
    started: list[str] = []

    def me() -> MeOut:
        if not started:
            raise Unreachable("no server")
        return MeOut(person="alice", role="admin", version="1")

    cli.api.on("me", me)
    monkeypatch.setattr(
        "headway.cli.commands.cluster.apply._start_server", lambda: started.append("x") or "http://127.0.0.1:9"
    )
    done = cli("apply", file)
    assert done.code == 0
    assert done.out.startswith("started the server at http://127.0.0.1:9; stop it with headway server stop\n")
    assert started == ["x"]


def test_apply_never_starts_a_server_if_headway_url_is_set(
    cli: Cli, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(cli.api, "url", "http://127.0.0.1:9")
    monkeypatch.setattr("headway.cli.commands.cluster.apply._start_server", lambda: pytest.fail("started one"))
    cli.api.on("me", Unreachable("no server at http://127.0.0.1:9"))
    assert cli("apply", file).code == 7


def test_apply_never_starts_a_server_if_client_json_names_one(
    cli: Cli, file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "config" / "headway"
    folder.mkdir(parents=True)
    (folder / "client.json").write_text(json.dumps({"url": f"{cli.api.url}/", "token": "t"}))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
    monkeypatch.setattr("headway.cli.commands.cluster.apply._start_server", lambda: pytest.fail("started one"))
    cli.api.on("me", Unreachable("no server there"))
    assert cli("apply", file).code == 7


@pytest.fixture
def root_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """`root_s(started)`: an ordinary person has started root's server by sudo; with another start time it has ended."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.delenv("HEADWAY_STATE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("headway.cli.commands.cluster.apply._start_server", lambda: pytest.fail("started a second one"))
    monkeypatch.setattr("time.sleep", lambda _: None)
    (tmp_path / "headway").mkdir(exist_ok=True)

    def write(started: str) -> None:
        known = {"url": "http://127.0.0.1:7001", "token": "hw_a", "pid": os.getpid(), "started": started}
        (tmp_path / "headway" / paths.SUDO_FILE).write_text(json.dumps({str(paths.ROOT_STATE): known}))

    return write


def test_apply_waits_for_the_stopped_server_of_root(
    cli: Cli, file: str, root_s: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(cli, changes(why_empty="it is so"))
    root_s("1")
    monkeypatch.setattr("headway.cli.common.connect", lambda: connect() and cli.api)
    monkeypatch.setattr("time.sleep", lambda _: root_s(process_start_time(os.getpid())))
    done = cli("apply", file)
    assert (done.code, done.out) == (0, "lab: nothing to change: it is so\n")
    assert done.err == "no server; waiting for it: sudo headway server start\n"


def test_apply_fails_if_the_server_of_root_stays_down(
    cli: Cli, file: str, root_s: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    root_s("1")
    monkeypatch.setattr("headway.cli.common.connect", connect)
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr("time.monotonic", lambda: float(next(clock)))
    done = cli("apply", file)
    assert (done.code, done.out) == (7, "")
    assert done.err.endswith("error: no server\n  sudo headway server start\n")


def own_s(tmp_path: Path) -> None:
    """The person has had a server of their own too."""
    (tmp_path / "data" / "headway").mkdir(parents=True)
    write_client(tmp_path / "data" / "headway", "http://127.0.0.1:7003", "hw_own")


def test_apply_starts_the_personal_server_despite_a_former_root_server(
    cli: Cli, file: str, root_s: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ready(cli, changes(why_empty="it is so"))
    root_s("1")
    own_s(tmp_path)

    def start() -> str:
        monkeypatch.setattr("headway.cli.common.connect", lambda: cli.api)
        return "http://127.0.0.1:7003"

    monkeypatch.setattr("headway.cli.commands.cluster.apply._start_server", start)
    monkeypatch.setattr("headway.cli.common.connect", connect)
    done = cli("apply", file)
    assert (done.code, done.out.splitlines()[-1]) == (0, "lab: nothing to change: it is so")


@pytest.mark.parametrize("own", [False, True])
def test_apply_waits_for_root_server_lost_midway_and_starts_no_second(
    cli: Cli, file: str, root_s: Callable[[str], None], tmp_path: Path, own: bool
) -> None:
    ready(cli, changes(*MANY))
    root_s(process_start_time(os.getpid()))
    if own:
        own_s(tmp_path)

    def lost(*_: Any, on_lost: Callable[[], None], **__: Any) -> Iterator[EventOut]:
        root_s("1")
        on_lost()
        return iter(())

    cli.api.on("operations.events", lost)
    done = cli("apply", file)
    assert (done.code, done.err) == (0, "the server has stopped; waiting for it: sudo headway server start\n")


@pytest.mark.parametrize(("text", "code"), [(None, 5), ("name: [", 2), ("name: lab\nname: two\n", 2)])
def test_plan_reports_a_missing_or_invalid_cluster_file(cli: Cli, file: str, text: str | None, code: int) -> None:
    if text is None:
        Path(file).unlink()
    else:
        Path(file).write_text(text)
    done = cli("plan", file)
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "a cluster file is a mapping of fields; create one with headway init"),
        (b"- a\n- b\n", "a cluster file is a mapping of fields"),
        (b"\x7fELF\x02\x01\xff\xfe", "is not UTF-8 text; name the cluster file"),
        (b"name: lab\0\n", "characters that YAML does not allow"),
        (b"a" * (5 << 20), "larger than 4 MiB"),
        (BOMB.encode(), "holds more than"),
        (b"[" * 5000, "nested more than 24 levels deep"),
        (b"!!python/object/apply:os.system [id]\n", "the tag"),
        (b"name: lab\n---\nname: two\n", "the file has a second YAML document"),
        (b"base: &b {nodes: 2}\n<<: *b\n", "merge keys"),
        (b"name: lab\nssh_keys: [./none.pub]\n", "none.pub does not exist"),
        (b"name: lab\nssh_keys: [./]\n", "is not a file"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_plan_reports_one_fault_for_each_kind_of_bad_file(cli: Cli, file: str, content: bytes, why: str) -> None:
    Path(file).write_bytes(content)
    done = cli("plan", file)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: the cluster file has 1 fault:")
    assert why in done.err


def test_plan_refuses_a_folder_and_an_endless_file(cli: Cli, tmp_path: Path) -> None:
    assert cli("plan", str(tmp_path)).code == 1
    assert "is a folder" in cli("plan", str(tmp_path)).err
    assert "larger than 4 MiB" in cli("plan", "/dev/zero").err


# --- down


def down_ready(cli: Cli, kept: list[str]) -> None:
    cli.api.on("clusters.only_name", "lab").on("clusters.get", cluster()).on("clusters.down", operation(kind="down"))
    cli.api.on("operations.events", lambda *_, **__: iter(()))
    cli.api.on("operations.get", operation("done", kind="down", kept=kept))


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path / "headway/ssh"


def test_down_asks_for_confirmation_and_lists_kept_data(cli: Cli, config: Path) -> None:
    down_ready(cli, ["/data/lab/home"])
    config.mkdir(parents=True)
    for name in ("lab.conf", "lab.known_hosts", "lab-x.conf"):
        (config / name).write_text("")
    done = cli("down", stdin=b"y\n", terminal=True)
    assert done.code == 0
    assert [path.name for path in config.iterdir()] == ["lab-x.conf"]
    assert "6 machines of lab will be removed, and 3 jobs; home, scratch and accounting are kept" in done.out
    assert "kept /data/lab/home" in done.out
    assert cli.api.named("clusters.down") == [(("lab",), {"delete_data": False})]


def test_interrupted_down_removes_the_ssh_files_of_the_cluster(cli: Cli, config: Path) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    down_ready(cli, [])
    cli.api.on("operations.events", interrupted)
    config.mkdir(parents=True)
    (config / "lab.conf").write_text("")
    assert cli("down", "lab", "--yes").code == 130
    assert list(config.iterdir()) == []


def test_down_without_a_terminal_requires_yes(cli: Cli) -> None:
    down_ready(cli, [])
    refused = cli("down", "lab", "--delete-data")
    assert refused.code == 3
    assert "DELETED" in refused.err
    assert not cli.api.named("clusters.down")
    assert cli("down", "lab", "--delete-data", "--yes").code == 0
    assert cli.api.named("clusters.down") == [(("lab",), {"delete_data": True})]


def test_down_with_delete_data_asks_for_the_name_of_the_cluster(cli: Cli) -> None:
    down_ready(cli, [])
    for answer in (b"y\n", b"yes\n", b"\n", b"other\n"):
        refused = cli("down", "--delete-data", stdin=answer, terminal=True)
        assert (refused.code, cli.api.named("clusters.down")) == (Refused.exit_code, []), answer
    assert cli("down", "--delete-data", stdin=b"lab\n", terminal=True).code == 0
    assert cli.api.named("clusters.down") == [(("lab",), {"delete_data": True})]


def test_down_answered_with_no_sends_no_request(cli: Cli) -> None:
    down_ready(cli, [])
    assert cli("down", stdin=b"n\n", terminal=True).code == Refused.exit_code
    assert not cli.api.named("clusters.down")


# --- the text of a ChangeSet


def test_ten_thousand_changes_are_folded_into_few_lines() -> None:
    found = changes(*(change("machine.create", f"lab-1-{i}", f"lab-1-{i}") for i in range(1, 10001)))
    lines = cs.changeset_lines(found, Terminal(colours=False, width=80, unicode=True))
    assert len(lines) < 6
    assert any("lab-1-[1-10000]" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_equal_disturbances_on_many_nodes_share_one_line() -> None:
    found = [change("unit.restart", f"lab-1-{i}", "slurmd.service", "node drain") for i in range(1, 9)]
    lines = cs.changeset_lines(changes(*found, disturbing=8), Terminal(colours=False, width=None, unicode=True))
    assert lines[-1] == "  unit.restart slurmd.service on lab-1-[1-8]: node drain (it is new)"
