"""A second head blocks connections to a missing first head with a routing rule, so that they fail at once, and unblocks
it when it answers."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

FIRST = "10.0.0.1"


class World:
    """A state folder, a first head that answers or does not, and this machine's routing rules as `ip rule` changes them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.there = True
        self.rules: list[str] = []
        self.works = True

    def away(self) -> Any:
        from agent.config import Config
        from agent.failover.unreachable_first_head import FirstHeadMonitor

        config = Config(head="10.0.0.2", first=False, first_head=FIRST, state=str(self.folder))
        return FirstHeadMonitor(config, answers=self.answers, execute=self.execute)

    def answers(self, address: str) -> bool:
        assert address == FIRST
        return self.there

    def execute(self, argv: Sequence[str]) -> int:
        program, what, do, *rest = argv
        assert (program, what) == ("ip", "rule")
        if not self.works:
            return 1
        if do == "del":
            kept = [rule for rule in self.rules if rule.split()[:2] != rest]
            gone = len(kept) < len(self.rules)
            self.rules = kept
            return 0 if gone else 2
        assert do == "add"
        if " ".join(rest) in self.rules:
            return 2
        self.rules.append(" ".join(rest))
        return 0

    def beat(self, at: int, number: int = 0) -> None:
        (self.folder / "heartbeat").write_bytes(struct.pack(">QQ", at, number))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_missing_first_head_is_blocked_until_it_answers_again(world: World) -> None:
    away = world.away()
    world.beat(1000)
    away.check(50.0)
    world.there = False
    away.check(51.5)
    assert world.rules == [], "a beat may be late"
    away.check(52.0)
    away.check(53.5)
    assert world.rules == [f"pref 6817 to {FIRST} ipproto tcp dport 6817-6819 unreachable"]
    world.beat(1009, number=1)  # this one leads
    away.check(60.0)
    assert len(world.rules) == 1
    world.there = True
    away.check(61.5)
    assert world.rules == []


def test_first_head_with_a_running_heartbeat_is_not_blocked(world: World) -> None:
    away = world.away()
    world.there = False  # the network between them is cut, or its agent stands still
    for n in range(10):
        world.beat(1000 + n)
        away.check(50.0 + n)
    assert world.rules == []


def test_answering_first_head_is_not_blocked_despite_an_old_heartbeat(world: World) -> None:
    away = world.away()
    world.beat(1000)
    for n in range(10):
        away.check(50.0 + n)
    assert world.rules == []


def test_blocking_ignores_clock_offset_and_a_missing_heartbeat_file(world: World) -> None:
    away = world.away()
    world.there = False
    away.check(50.0)
    away.check(53.0)
    assert len(world.rules) == 1, "both heads were switched on, and the first one did not come"
    world.beat(17)  # of a clock that is years behind
    away.check(54.0)
    world.beat(18)
    away.check(55.0)
    assert world.rules == []


def test_leftover_block_rule_is_removed_and_a_deleted_one_restored(
    world: World,
) -> None:
    world.rules = [f"pref 6817 to {FIRST} ipproto tcp dport 6817-6819 unreachable"]
    away = world.away()
    world.beat(1000)
    away.check(50.0)
    assert world.rules == []
    world.there = False
    away.check(53.0)
    world.rules = []
    away.check(54.0)
    assert len(world.rules) == 1


def test_failing_ip_rule_command_is_logged_once(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    from agent import log

    world.works = False
    away = world.away()
    world.there = False
    for n in range(10):
        log._last_written[0] = -1.0
        away.check(50.0 + n)
    assert capsys.readouterr().err.count("ip rule") == 1


def test_host_answers_on_reply_or_refusal_but_not_on_accept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from agent.failover import unreachable_first_head

    monkeypatch.setattr(unreachable_first_head, "WAIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as ears:
        port = ears.getsockname()[1]
        assert not unreachable_first_head.host_answers("127.0.0.1", port), (
            "its kernel accepts the connection, and no program answers"
        )
        monkeypatch.setattr(unreachable_first_head, "WAIT_S", 60.0)

        def speak() -> None:
            for _ in range(2):  # the first was the one above
                link, _ = ears.accept()
                with link:
                    link.sendall(b"HTTP/1.1 404 Not Found\r\n\r\n")

        speaker = threading.Thread(target=speak, daemon=True)
        speaker.start()
        assert unreachable_first_head.host_answers("127.0.0.1", port)
        speaker.join(60)
    assert unreachable_first_head.host_answers("127.0.0.1", port), (
        "refused: the machine is there, its agent is about to be"
    )
