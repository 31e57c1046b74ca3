"""The configuration has all servers, and only those that are healthy get requests; its shape depends on services alone."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from steer_proxy import __main__ as steer_proxy
from steer_proxy.configuration import CHECK


def settings(*states: str, health: str = "/health") -> dict[str, Any]:
    servers = [
        {"name": f"r{n}", "node": "n1", "address": "10.0.0.7", "port": 17000 + n, "state": state, "weight": 100}
        for n, state in enumerate(states, 1)
    ]
    return {
        "port": 8470,
        "keys": {},
        "limits": {},
        "slots": steer_proxy.SLOTS,
        "services": [
            {
                "name": "red:chat", "health": health, "hold_s": 60, "servers": servers,
                "slot": "slot1", "process": "7", "since": {"requests": 70},
            }
        ],
    }  # fmt: skip


def test_only_healthy_servers_have_weight() -> None:
    lines = steer_proxy.configuration(settings("new", "ready", "drain")).splitlines()
    servers = [line.split() for line in lines if line.startswith("    server ")]
    assert [(words[1], words[2], words[-1]) for words in servers] == [
        ("r1-10.0.0.7:17001", "10.0.0.7:17001", "0"),
        ("r2-10.0.0.7:17002", "10.0.0.7:17002", "100"),
        ("r3-10.0.0.7:17003", "10.0.0.7:17003", "0"),
    ]
    first = lines.index("backend slot1")
    assert (
        first
        < lines.index("    server r1-10.0.0.7:17001 10.0.0.7:17001 " + CHECK + " weight 0")
        < lines.index("backend slot2")
    )


def test_service_with_too_many_requests_refuses_them_before_it_holds_them() -> None:
    lines = [line.strip() for line in steer_proxy.configuration(settings()).splitlines()]
    refused = next(n for n, line in enumerate(lines) if line.endswith("if { be_conn gt 3000 }"))
    assert lines[refused].startswith("http-request return status 503 ")
    assert lines.index("backend slot1") < refused < lines.index("http-request lua.hold")


def test_refused_requests_are_not_logged() -> None:
    lines = [line.strip() for line in steer_proxy.configuration(settings()).splitlines()]
    silent = [lines[at - 1] for at, line in enumerate(lines) if " return status 4" in line]
    assert silent == [
        "http-request set-log-level silent unless { path_beg /serve/ }",
        "http-request set-log-level silent unless known_key key_of_service",
        next(line for line in lines if "return status 401" in line),
        "http-request set-log-level silent if has_limit over_limit",
    ]


def test_server_without_an_address_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings("ready", "ready")
    asked["services"][0]["servers"][0]["node"] = "gone"

    def address(node: str) -> str:
        if node == "gone":
            raise socket.gaierror(-2, "Name or service not known")
        return "10.0.0.8"

    monkeypatch.setattr(socket, "gethostbyname", address)
    steer_proxy.resolve(asked)
    assert [(one["name"], one["address"]) for one in asked["services"][0]["servers"]] == [("r2", "10.0.0.8")]


def test_servers_and_services_do_not_change_the_shape() -> None:
    shape = steer_proxy.shape_of(settings("new"))
    assert shape == steer_proxy.shape_of(settings("ready", "ready", health="/ready"))
    assert shape == steer_proxy.shape_of({**settings(), "services": []})
    assert shape != steer_proxy.shape_of({**settings(), "slots": 2 * steer_proxy.SLOTS})


def backend(slot: str, requests: int, *servers: str) -> str:
    """Returns the rows of a slot in HAProxy's figures."""
    return "".join(f"{slot},{name},0,0\n" for name in servers) + f"{slot},BACKEND,0,{requests}\n"


class Slots:
    """The program's folder, and what HAProxy says of its slots."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = ""
        self.process = "7"
        self.active = True
        self.map: dict[str, str] = {}
        monkeypatch.setattr(steer_proxy, "FOLDER", str(folder))
        monkeypatch.setattr(steer_proxy, "SLOTS", 3)
        monkeypatch.setattr(steer_proxy, "START_S", 0)
        monkeypatch.setattr(steer_proxy, "worker", lambda: self.process)
        monkeypatch.setattr(steer_proxy, "is_running", lambda: self.active)
        monkeypatch.setattr(steer_proxy, "ask", self.answer)

    def answer(self, command: str) -> str:
        if command == f"show map {steer_proxy.FOLDER}/slots.map":
            return "".join(f"0x1 {name} {slot}\n" for name, slot in self.map.items())
        assert command == "show stat"
        return "# pxname,svname,scur,req_tot,hrsp_4xx,hrsp_5xx,wretr\n" + self.rows

    def of(self, *names: str) -> tuple[dict[str, str], int]:
        """Returns the slot of each service, and how many slots there are."""
        request: dict[str, Any] = {"services": [{"name": name} for name in names]}
        steer_proxy.assign_slots(request)
        return {one["name"]: one["slot"] for one in request["services"]}, request["slots"]


def test_service_keeps_its_slot_and_another_gets_an_unused_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots(tmp_path, monkeypatch)
    slots.process, slots.active = "", False
    assert slots.of("red:chat") == ({"red:chat": "slot1"}, 3)
    slots.active = True
    slots.process, slots.rows = "7", backend("slot1", 9, "r1") + backend("slot2", 5) + backend("slot3", 0)
    assert slots.of("red:chat", "red:new") == ({"red:chat": "slot1", "red:new": "slot3"}, 3)
    assert slots.of("red:new") == ({"red:new": "slot3"}, 3)
    assert slots.of("red:other", "red:new")[0] == {"red:new": "slot3", "red:other": "slot2"}, "slot1 has a server"
    slots.rows = backend("slot1", 9)
    assert slots.of("red:other", "red:new", "red:last")[0]["red:last"] == "slot1"


def test_slot_is_free_only_after_the_map_no_longer_has_its_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slots = Slots(tmp_path, monkeypatch)
    slots.rows = backend("slot1", 9) + backend("slot2", 9) + backend("slot3", 9)
    assert slots.of("a:a", "b:b", "c:c")[0] == {"a:a": "slot1", "b:b": "slot2", "c:c": "slot3"}
    slots.map = {"a:a": "slot1", "b:b": "slot2", "c:c": "slot3"}
    assert slots.of("b:b", "c:c", "d:d")[0]["d:d"] == "slot4", "a request for a:a can still arrive in slot1"
    slots.map = {"b:b": "slot2", "c:c": "slot3", "d:d": "slot4"}
    assert slots.of("b:b", "c:c", "d:d", "e:e")[0]["e:e"] == "slot1"


def test_round_stops_while_a_running_haproxy_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots(tmp_path, monkeypatch)
    slots.of("a:a")
    slots.process = ""
    with pytest.raises(SystemExit, match="does not answer"):
        slots.of("b:b")
    assert set(json.loads((tmp_path / "slots.json").read_text())) == {"a:a"}


def test_service_that_is_unchanged_keeps_its_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steer_proxy, "FOLDER", str(tmp_path))
    before = [{"name": "red:chat", "servers": [{"name": "r1"}]}, {"name": "red:gone", "servers": []}]
    (tmp_path / "services.json").write_text(json.dumps(before))
    request: dict[str, Any] = {"services": [{"name": "red:new"}], "unchanged": ["red:chat", "red:unknown"]}
    steer_proxy.add_unchanged(request)
    assert request["services"] == [{"name": "red:new"}, before[0]]


def test_slots_are_added_when_they_do_not_suffice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slots = Slots(tmp_path, monkeypatch)
    assert slots.of("a:a", "b:b", "c:c")[1] == 3
    assert slots.of("a:a", "b:b", "c:c", "d:d") == ({"a:a": "slot1", "b:b": "slot2", "c:c": "slot3", "d:d": "slot4"}, 6)
    slots.rows = backend("slot6", 0)
    assert slots.of("a:a")[1] == 6, "fewer would need another reload"


def test_servers_and_keys_change_through_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    stat = (
        "# pxname,svname,status,weight\n"
        "slot1,r1-10.0.0.7:17001,UP,100\nslot1,r9-10.0.0.7:17009,UP,100\nslot1,BACKEND,UP,200\n"
    )

    def ask(*commands: str, path: str = "") -> str:
        told.extend(commands)
        answers = {"show stat": stat, "show map /etc/headway/serve/keys.map": "0x1 aa red:chat\n0x2 bb red:chat\n"}
        return answers.get(commands[0], "New server registered.\n" if commands[0].startswith("add server ") else "")

    monkeypatch.setattr(steer_proxy, "ask", ask)
    steer_proxy.set_servers(settings("drain", "new"))
    assert told[1:] == [
        "set server slot1/r1-10.0.0.7:17001 weight 0",
        "set server slot1/r1-10.0.0.7:17001 state ready",
        f"add server slot1/r2-10.0.0.7:17002 10.0.0.7:17002 {CHECK} weight 100",
        "enable health slot1/r2-10.0.0.7:17002",
        "set server slot1/r2-10.0.0.7:17002 weight 0",
        "set server slot1/r2-10.0.0.7:17002 state ready",
        "set server slot1/r9-10.0.0.7:17009 state maint",
        "del server slot1/r9-10.0.0.7:17009",
    ]
    told.clear()
    steer_proxy.set_map("keys.map", {"bb": "red:other", "cc": "red:chat"})
    assert told[1:] == [
        "del map /etc/headway/serve/keys.map aa",
        "set map /etc/headway/serve/keys.map bb red:other",
        "add map /etc/headway/serve/keys.map cc red:chat",
    ]


def test_replica_on_another_node_gets_a_server_of_its_own_while_the_old_one_has_requests(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []
    added = "New server registered.\n"

    def ask(*commands: str) -> str:
        told.extend(commands)
        if commands[0] == "show stat":
            return "# pxname,svname,status,weight\nslot1,r1-10.0.0.6:17001,UP,100\n"
        if commands[0].startswith("del server "):
            return "Server still has connections attached to it, cannot remove it.\n"
        return added if commands[0].startswith("add server ") else "\n"

    monkeypatch.setattr(steer_proxy, "ask", ask)
    steer_proxy.set_servers(settings("ready"))
    old, new = "slot1/r1-10.0.0.6:17001", "slot1/r1-10.0.0.7:17001"
    assert f"set server {old} state maint" in told
    assert f"set server {old} state ready" not in told
    assert f"set server {new} state ready" in told
    assert capsys.readouterr().err == ""
    told.clear()
    added = "unable to add the server\n"
    steer_proxy.set_servers(settings("ready"))
    assert f"set server {new} state ready" not in told
    assert capsys.readouterr().err == "slot1/r1-10.0.0.7:17001: unable to add the server\n"


def test_server_stays_healthy_while_another_check_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = "scur,stot,req_tot,hrsp_4xx,hrsp_5xx,wretr,rtime,ttime,check_status,check_code,last_chk"
    stat = (
        f"# pxname,svname,{columns}\n"
        "slot1,r1-10.0.0.7:17001,2,5000,,,,,12,34,* L7OK,200,\n"
        "slot1,r2-10.0.0.7:17002,0,512,,,,,6,10,L4CON,,Connection refused\n"
        "slot1,r2-10.0.0.6:17002,1,9,,,,,6,10,L7OK,200,\n"
        "slot1,BACKEND,3,5512,5582,4,5,6,90,95,,,\n"
    )
    proc = "# workers\n31 worker 0\n# old workers\n20 worker 1\n# programs\n"
    old = "# pxname,svname,scur\nslot1,r1-10.0.0.7:17001,5\nslot1,r1-10.0.0.6:17001,1\n"
    answers = {"show stat": stat, "show info": "Pid: 7\n", "show proc": proc, "@!20 show stat": old}
    monkeypatch.setattr(steer_proxy, "ask", lambda command, path="": answers[command])
    assert steer_proxy.read_figures(settings("ready", "ready")) == {
        "red:chat": {
            "requests": 5512, "active": 3, "errors_4xx": 4, "errors_5xx": 5, "retries": 6, "first_byte_ms": 10, "total_ms": 26,
            "servers": {
                "r1": {"healthy": True, "sessions": 7, "requests": 5000, "check": "L7OK 200"},
                "r2": {"healthy": False, "sessions": 0, "requests": 512, "check": "L4CON Connection refused"},
            },
        }
    }  # fmt: skip


def test_master_that_does_not_listen_yet_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = [ConnectionRefusedError(), FileNotFoundError()]

    def ask(command: str, path: str = "") -> str:
        if command == "show proc" and refused:
            raise refused.pop()
        return {"show proc": "# old workers\n20 worker 1\n", "@!20 show stat": "# pxname,svname\nslot1,r1\n"}[command]

    monkeypatch.setattr(steer_proxy, "ask", ask)
    monkeypatch.setattr(steer_proxy.time, "sleep", lambda seconds: None)
    assert list(steer_proxy.old_processes()) == ["# pxname,svname\nslot1,r1\n"]
    assert refused == []


def test_empty_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "keys.map"
    assert steer_proxy.write(str(file), "", 0o600)
    assert file.read_text() == ""
    assert not steer_proxy.write(str(file), "", 0o600)
