"""The configuration has all servers, and only those that are healthy get requests; its shape depends on services alone."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from programs import steer_proxy


def settings(*states: str, health: str = "/health") -> dict[str, Any]:
    servers = [
        {"name": f"r{n}", "node": "n1", "address": "10.0.0.7", "port": 17000 + n, "state": state, "weight": 100}
        for n, state in enumerate(states, 1)
    ]
    return {
        "port": 8470,
        "keys": {},
        "limits": {},
        "services": [{"name": "red:chat", "health": health, "hold_s": 60, "servers": servers}],
    }


def test_only_healthy_servers_have_weight() -> None:
    lines = steer_proxy.configuration(settings("new", "ready", "drain")).splitlines()
    servers = [line.split() for line in lines if line.startswith("    server ")]
    assert [(words[1], words[2], words[-1]) for words in servers] == [
        ("r1", "10.0.0.7:17001", "0"),
        ("r2", "10.0.0.7:17002", "100"),
        ("r3", "10.0.0.7:17003", "0"),
    ]
    assert "backend red:chat" in lines


def test_service_with_too_many_requests_refuses_them_before_it_holds_them() -> None:
    lines = [line.strip() for line in steer_proxy.configuration(settings()).splitlines()]
    refused = next(n for n, line in enumerate(lines) if line.endswith("if { be_conn gt 3000 }"))
    assert lines[refused].startswith("http-request return status 503 ")
    assert lines.index("backend red:chat") < refused < lines.index("http-request lua.hold 60")


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


def test_servers_do_not_change_the_shape_and_services_do() -> None:
    assert steer_proxy.shape_of(settings("new")) == steer_proxy.shape_of(settings("ready", "ready"))
    assert steer_proxy.shape_of(settings()) != steer_proxy.shape_of(settings(health="/ready"))


def test_servers_and_keys_change_through_the_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    stat = "# pxname,svname,status,weight,addr\nred:chat,r1,UP,100,10.0.0.7:17001\nred:chat,r9,UP,100,10.0.0.7:17009\n"

    def ask(*commands: str, path: str = "") -> str:
        told.extend(commands)
        answers = {"show stat": stat, "show map /etc/headway/serve/keys.map": "0x1 aa red:chat\n0x2 bb red:chat\n"}
        return answers.get(commands[0], "")

    monkeypatch.setattr(steer_proxy, "ask", ask)
    steer_proxy.set_servers(settings("drain", "new"))
    assert told[1:] == [
        "set server red:chat/r1 weight 0",
        "set server red:chat/r1 state ready",
        f"add server red:chat/r2 10.0.0.7:17002 {steer_proxy.CHECK} weight 100",
        "enable health red:chat/r2",
        "set server red:chat/r2 weight 0",
        "set server red:chat/r2 state ready",
        "set server red:chat/r9 state maint",
        "del server red:chat/r9",
    ]
    told.clear()
    steer_proxy.set_map("keys.map", {"bb": "red:chat", "cc": "red:chat"})
    assert told[1:] == [
        "del map /etc/headway/serve/keys.map aa",
        "add map /etc/headway/serve/keys.map cc red:chat",
    ]


def test_server_stays_healthy_while_another_check_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = "scur,stot,req_tot,hrsp_4xx,hrsp_5xx,wretr,rtime,ttime,check_status,check_code,last_chk"
    stat = (
        f"# pxname,svname,{columns}\n"
        "red:chat,r1,2,70,,,,,,,* L7OK,200,\n"
        "red:chat,r2,0,0,,,,,,,L4CON,,Connection refused\n"
        "red:chat,BACKEND,3,71,71,4,5,6,12,34,,,\n"
    )
    proc = "# workers\n31 worker 0\n# old workers\n20 worker 1\n# programs\n"
    old = "# pxname,svname,scur\nred:chat,r1,5\nred:chat,gone,1\n"
    answers = {"show stat": stat, "show proc": proc, "@!20 show stat": old}
    monkeypatch.setattr(steer_proxy, "ask", lambda command, path="": answers[command])
    assert steer_proxy.read_figures() == {
        "red:chat": {
            "requests": 71, "active": 3, "errors_4xx": 4, "errors_5xx": 5, "retries": 6, "first_byte_ms": 12, "total_ms": 34,
            "servers": {
                "r1": {"healthy": True, "sessions": 7, "requests": 70, "check": "L7OK 200"},
                "r2": {"healthy": False, "sessions": 0, "requests": 0, "check": "L4CON Connection refused"},
            },
        }
    }  # fmt: skip


def test_empty_file_is_written(tmp_path: Path) -> None:
    file = tmp_path / "keys.map"
    assert steer_proxy.write(str(file), "", 0o600)
    assert file.read_text() == ""
    assert not steer_proxy.write(str(file), "", 0o600)
