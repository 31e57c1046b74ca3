"""A training's report is attributed to the job of its cgroup, stored once on the head, and never blocks the
training."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agent import processes
from agent.jobs import training_reports
from agent.roles import head as relay
from tests.support.paths import NODE

SLURM1 = "9:devices:{root}/slurm/uid_1000/job_12/step_0/task_0\n1:name=systemd:{root}/system.slice/slurmd.service\n"
SLURM2 = "0::{root}/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n"


def proc(folder: Path, cgroup: str, root: str = "") -> str:
    """A /proc with process 7, and 1, which stands at the top of this machine's tree."""
    for pid, text in ((7, cgroup.format(root=root)), (1, f"9:devices:{root or '/'}\n0::{root}/init.scope\n")):
        (folder / str(pid)).mkdir()
        (folder / str(pid) / "cgroup").write_text(text)
    return str(folder)


@pytest.mark.parametrize("root", ["", "/libpod-3f/ct"])
@pytest.mark.parametrize("cgroup", [SLURM1, SLURM2, SLURM2.replace("slurmstepd", "n1_slurmstepd")])
def test_job_of_reads_the_job_from_the_cgroup(tmp_path: Path, cgroup: str, root: str) -> None:
    assert processes.job_of(7, os.getuid(), proc(tmp_path, cgroup, root)) == 12


@pytest.mark.parametrize(
    "cgroup",
    [
        "0::{root}/user.slice/user-1000.slice/session-3.scope\n",
        "0::{root}/user.slice/user@1000.service/app.slice/slurm/uid_1000/job_12/step_0\n",
        "0::{root}/user.slice/user@1000.service/system.slice/slurmstepd.scope/job_12/step_0\n",
        "0::{root}/system.slice/slurmstepd.scope/system\n",
        "",
    ],
)
def test_job_of_ignores_cgroups_made_by_users(tmp_path: Path, cgroup: str) -> None:
    assert processes.job_of(7, os.getuid(), proc(tmp_path, cgroup)) is None


def test_job_of_ignores_ended_processes_and_other_users(tmp_path: Path) -> None:
    place = proc(tmp_path, SLURM2)
    assert processes.job_of(8, os.getuid(), place) is None
    assert processes.job_of(7, os.getuid() + 1, place) is None


@pytest.mark.parametrize(
    ("data", "values"),
    [
        (b'{"step": 3, "loss": 1.5, "tokens": 900, "lr": 1e-3}', {"step": 3, "loss": 1.5, "tokens": 900, "lr": 1e-3}),
        (b'{"step": 3, "loss": NaN, "lr": Infinity}', {"step": 3, "loss": "nan"}),
        (b'{"step": -1, "tokens": 1e9, "a b": 1, "x": "y", "z": true}', None),
        (b'{"step": 1%s}' % (b"0" * 300), None),
        (b"[" * 3000, None),
        (b"\xff", None),
        (b"[1]", None),
        (b'{"step": 3, "t": 9e9, "n": 7, "ago_s": 1e6, "tokens_per_s": 1e9}', {"step": 3}),
    ],
)
def test_parse_report_accepts_only_valid_numbers(data: bytes, values: Any) -> None:
    assert training_reports.parse_report(data) == values


def test_report_time_is_set_by_the_head(tmp_path: Path) -> None:
    head = relay.NodeMessages(str(tmp_path / "reports"), str(tmp_path / "faults"), str(tmp_path / "turns"))
    head.receive(b'{"jobs": {"7": {"n": "1", "ago_s": 2, "step": 5, "t": 9e9}}}', 1000.0, 1000.0)
    assert json.loads((tmp_path / "reports/7.jsonl").read_text()) == {"step": 5, "t": 998.0}


def node(sent: list[dict[str, Any]]) -> Any:
    return training_reports.Reports(sent.append, who=lambda pid, uid: {1: 12, 2: 13}.get(pid))


def say(**values: Any) -> bytes:
    return json.dumps(values).encode()


def test_latest_report_of_each_job_is_sent_and_repeated_once() -> None:
    sent: list[dict[str, Any]] = []
    ears = node(sent)
    for step in range(5):
        ears.receive(say(step=step, loss=1.0), 1, 0, 0.1 * step)
    ears.receive(say(step=9, loss=2.0), 2, 0, 0.5)
    ears.receive(say(step=9, loss=2.0), 3, 0, 0.5)  # in no job
    for now in (2.0, 4.0, 6.0, 8.0):
        ears.flush(now)
    first, other, once, again = sent
    assert [first["jobs"]["12"]["step"], other["jobs"]["13"]["step"]] == [0, 9], "where it begins is told at once"
    assert [sorted(message["jobs"]) for message in (once, again)] == [["12", "13"], ["12", "13"]]
    assert [message["jobs"]["12"]["step"] for message in (once, again)] == [4, 4]
    assert once["jobs"]["12"]["n"] == again["jobs"]["12"]["n"], "the same number: the head keeps it once"
    assert [message["jobs"]["12"]["ago_s"] for message in (first, once, again)] == [0.0, 1.6, 3.6]
    ears.flush(1000.0)
    assert not ears.jobs, "a job that has ended is forgotten"


def test_restart_of_a_training_is_sent_at_once_but_rate_limited() -> None:
    sent: list[dict[str, Any]] = []
    ears = node(sent)
    for step, now in ((7, 0.0), (8, 0.5), (5, 2.0), (4, 2.1), (3, 2.2), (6, 2.5), (2, 3.5)):
        ears.receive(say(step=step), 1, 0, now)
    assert [message["jobs"]["12"]["step"] for message in sent] == [7, 5, 2]


def test_occasional_loss_is_sent_with_the_step_that_follows_it() -> None:
    spoken = training_reports.JobReport()
    spoken.update({"step": 10, "loss": 2.5}, 0.0)
    spoken.update({"step": 11}, 0.1)
    assert spoken.values == {"step": 11, "loss": 2.5}
    spoken.left -= 1  # it was sent
    spoken.update({"step": 12}, 2.0)
    assert spoken.values == {"step": 12}
    spoken.update({"step": 13, "loss": 2.25}, 2.1)
    spoken.update({"tokens": 9}, 2.2)
    assert spoken.values == {"step": 13, "loss": 2.25, "tokens": 9}
    spoken.update({"step": 5}, 2.3)
    assert spoken.values == {"step": 5}, "it went on from a checkpoint"


def test_token_rate_covers_half_a_minute_and_resets_on_restart() -> None:
    spoken = training_reports.JobReport()
    for second in range(100):
        spoken.update({"tokens": second * (10 if second < 50 else 100)}, float(second))
    assert spoken.tokens_per_s == 100
    spoken.update({"tokens": 50}, 101.0)
    assert spoken.tokens_per_s is None
    spoken.update({"tokens": 70}, 103.0)
    assert spoken.tokens_per_s == 10


def test_report_messages_stay_below_the_datagram_limit() -> None:
    sent: list[dict[str, Any]] = []
    ears = training_reports.Reports(sent.append, who=lambda pid, uid: pid)
    for number in range(300):
        ears.receive(say(step=1, **{f"{'n' * 60}{i}": 1.123456789 for i in range(16)}), number, 0, 0.0)
    ears.flush(2.0)
    assert sum(len(message["jobs"]) for message in sent[300:]) == 300  # behind the first ones, which go at once
    assert max(len(json.dumps(message)) for message in sent) < 40_000


def rows(folder: Path, job: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / f"{job}.jsonl").read_text().splitlines()]


def message(number: str, **values: Any) -> bytes:
    return json.dumps({"jobs": {"12": {"n": number, **values}}}).encode()


def test_relay_stores_each_report_once_and_survives_a_kill(tmp_path: Path) -> None:
    head = relay.NodeMessages(str(tmp_path))
    head.receive(message("a.1", step=1, loss=3.0), 100.0, 100.0)
    head.receive(message("a.1", step=1, loss=3.0), 102.0, 102.0)
    head.receive(b"nonsense", 102.0, 102.0)
    head.receive(b'{"jobs": {"../x": {"n": "1"}}}', 102.0, 102.0)
    with (tmp_path / "12.jsonl").open("a") as file:
        file.write('{"t": 103, "st')  # killed in the middle of a line
    head = relay.NodeMessages(str(tmp_path))
    head.receive(message("a.2", step=2, loss=2.0), 104.0, 104.0)
    head.receive(message("a.3", step=3, loss=1.0, ago_s=2.5), 108.0, 108.0)
    assert rows(tmp_path, 12)[2:] == [{"t": 105.5, "step": 3, "loss": 1.0}], "when it was said, not when it came"
    assert rows(tmp_path, 12)[:2] == [{"t": 100.0, "step": 1, "loss": 3.0}, {"t": 104.0, "step": 2, "loss": 2.0}]
    assert [path.name for path in tmp_path.iterdir()] == ["12.jsonl"]


def test_stored_reports_are_thinned_and_old_files_deleted(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(relay, "MOST_LINES", 50)
    head = relay.NodeMessages(str(tmp_path))
    for step in range(500):
        head.receive(message(f"a.{step}", step=step, loss=1.0), float(step), float(step))
    kept = [row["step"] for row in rows(tmp_path, 12)]
    assert len(kept) <= 50
    assert (kept[0], kept[-1]) == (0, 499)
    assert kept == sorted(kept)
    os.utime(tmp_path / "12.jsonl", (0, 0))
    head.forget_old(relay.KEEP_S + 1.0)
    assert list(tmp_path.iterdir()) == []


# --- the sending side, as a training runs it

TRAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from headway_train import report
"""


def train(code: str, path: Path | str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", TRAIN + code, str(NODE / "train")],
        env={**os.environ, "HEADWAY_REPORT_SOCKET": str(path), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def ears(tmp_path: Path) -> Any:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "s"))
        sock.setblocking(False)
        yield sock


def heard(sock: socket.socket) -> list[dict[str, Any]]:
    found = []
    while True:
        try:
            found.append(json.loads(sock.recv(65536)))
        except BlockingIOError:
            return found


def test_report_sends_numbers_and_the_last_step_of_a_fast_loop(ears: socket.socket, tmp_path: Path) -> None:
    # The queue of a socket that nothing reads holds ten datagrams; on a slow machine the loop lasts longer than those.
    code = "import headway_train.progress as p; p.LEAST_S = 600\n"
    code += "for i in range(1, 2001): report(step=i, loss=1 / i, tokens=i * 10, lr='0.5', note='x', bad=object())\n"
    ran = train(code + "assert 'torch' not in sys.modules", tmp_path / "s")
    assert (ran.returncode, ran.stderr) == (0, "")
    found = heard(ears)
    run_began = found[-1]["run_began"]
    assert found[0] == {"run_began": run_began, "step": 1, "loss": 1.0, "tokens": 10, "lr": 0.5}
    assert [row["step"] for row in found] == [1, 2000], "the last one was held back until the training ended"


def test_only_rank_0_sends_reports(ears: socket.socket, tmp_path: Path) -> None:
    for env in ({"RANK": "1"}, {"SLURM_PROCID": "3"}):
        assert train("report(step=1, loss=1.0)", tmp_path / "s", **env).returncode == 0
    assert heard(ears) == []
    assert train("report(step=1, loss=1.0)", tmp_path / "s", RANK="0", SLURM_PROCID="3").returncode == 0
    assert len(heard(ears)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "report(step=1, loss=1.0)",
        "report(step='x', loss=[1], tokens=float('nan'))",
        "report(step=10**400, loss=10**400)",
        "report(**{'k' * 5000: 1.0})",
        "import os; os.environ['RANK'] = 'x'; report(step=1)",
    ],
)
def test_report_never_fails_without_agent_or_with_invalid_values(code: str, tmp_path: Path) -> None:
    ran = train(code + "\nprint('on')", tmp_path / "nobody")
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "on\n", "")


def test_report_never_blocks_on_an_agent_that_does_not_read(ears: socket.socket, tmp_path: Path) -> None:
    code = "import headway_train.progress as p; p.LEAST_S = 0\nfor i in range(5000): report(step=i, loss=1.0)"
    assert train(code, tmp_path / "s").returncode == 0
    assert 0 < len(heard(ears)) < 5000, "its queue was full, and the training went on"
