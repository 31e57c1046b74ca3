"""Job starts and ends on a node, and job numbers in the controller's log, are reported to the server's event stream."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from agent.jobs import job_changes
from agent.roles import head as relay
from agent.roles import server_stream
from headway.catalog.node_images import slurm_release
from headway.health.detection.agent_events import JobEvents as Told
from headway.health.detection.agent_events import parse_event
from headway.render.machine_paths import EPILOG, JOB_SHM, JOB_TMP, PROLOG
from headway.render.slurm.hooks.prolog_epilog import LEFT, scripts
from headway.render.system.agent_config import LOOKED
from tests.support.paths import NODE


def test_prolog_and_epilog_runs_are_reported_as_job_changes(tmp_path: Path) -> None:
    folder = tmp_path / "job-tmp"
    (tmp_path / "looked").touch()  # the agent has: until then a prolog waits
    heard = job_changes.JobChanges(str(folder))
    assert not heard.has_changed(1.0)
    assert heard.message_part(1.0) == {}

    def run(script: str) -> None:
        text = scripts(slurm_release("24.11"))[script].text
        for path, own in ((JOB_SHM, tmp_path / "shm"), (JOB_TMP, folder), (LOOKED, tmp_path / "looked")):
            text = text.replace(path, str(own))
        left = f"{tmp_path}/left"  # else what this host has of somebody with that uid would go
        assert text.count(LEFT) == (script == EPILOG)
        text = text.replace(LEFT, left).replace("/var/lib/headway", str(tmp_path))
        env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "12", "SLURM_JOB_UID": "20000", "SLURM_JOB_EXIT_CODE": "0"}
        subprocess.run(["bash", "-c", text], env=env, check=True, timeout=30)

    run(PROLOG)
    assert heard.has_changed(2.0)
    began = heard.message_part(2.0)["turns"]
    assert began["jobs"] == [12]
    assert not heard.has_changed(2.1)
    run(EPILOG)
    assert heard.has_changed(4.0)
    ended = heard.message_part(4.0)["turns"]
    assert (ended["jobs"], ended["n"] == began["n"]) == ([12], False)
    assert heard.message_part(8.0) == {}


def test_job_that_came_and_went_between_two_looks_is_reported(tmp_path: Path) -> None:
    os.utime(tmp_path, (1, 1))
    heard = job_changes.JobChanges(str(tmp_path))
    (tmp_path / "12").mkdir()
    (tmp_path / "12").rmdir()
    assert heard.has_changed(1.0)
    assert heard.message_part(1.0)["turns"]["jobs"] == []


def test_epilog_start_is_reported_even_if_the_folder_appears_later(tmp_path: Path) -> None:
    folder = tmp_path / "job-tmp"
    heard = job_changes.JobChanges(str(folder))
    (folder / "7").mkdir(parents=True)
    assert heard.has_changed(1.0)
    (folder / "7.ends").write_text("")
    assert heard.has_changed(5.0)
    assert heard.message_part(5.0)["turns"]["jobs"] == [7]


def beat(number: str, *jobs: int, node: str = "n1") -> bytes:
    return json.dumps({"node": node, "turns": {"n": number, "jobs": jobs}}).encode()


def test_relay_passes_each_job_change_once_to_the_server_stream(tmp_path: Path) -> None:
    file = tmp_path / "turns"
    head = relay.NodeMessages(str(tmp_path / "reports"), str(tmp_path / "f"), str(file))
    assert head.receive(beat("a.1", 3), 1.0, 1.0) == {
        "got": [],
        "now": 1.0,
        "leads": True,
        "controller": 0,
        "others": [],
    }
    code = f"from agent.roles.server_stream import stream_events; stream_events({str(tmp_path / 'f')!r}, 'none', {str(file)!r})"
    with subprocess.Popen([sys.executable, "-c", code], cwd=NODE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert b"relay" in process.stdout.readline()
            for message in (beat("a.2", 3, 4), beat("a.2", 3, 4), beat("b.1", 9, node="n2"), beat("b.2", node="n2")):
                head.receive(message, 2.0, 2.0)
            told: set[int] = set()
            while told != {3, 4, 9}:
                news = parse_event(process.stdout.readline())
                told |= set(news.jobs) if isinstance(news, Told) else set()
        finally:
            process.kill()
    assert len(file.read_text().splitlines()) == 4, "a.1, a.2, b.1, b.2"


LOG = """
_slurm_rpc_submit_batch_job: JobId=12 InitPrio=100 usec=300
sched: Allocate JobId=12 NodeList=n1 #CPUs=8 Partition=train
_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId=7_3(15) uid 1001
sched/backfill: _start_job: Started JobId=7_4(16) in train on n2
_slurm_rpc_submit_batch_job: JobId=20_* InitPrio=1
error: nothing of a job
JobId=99"""


def test_controller_log_yields_the_job_numbers_it_names(tmp_path: Path) -> None:
    """Also of one that ends, and of none at all; half a line is not read yet."""
    log = tmp_path / "log"
    log.write_text(LOG)
    named = server_stream.ControllerLog(("cat", str(log)))
    told = named.new_job_numbers()
    while named._process is not None:
        told += named.new_job_numbers()
    assert sorted(set(told)) == [12, 15, 16, 20]
    assert named.new_job_numbers() == [], "it is not started again at once"
    named._next_try = 0.0
    while not (again := named.new_job_numbers()):
        assert named._process is not None
    assert again == [12, 15, 16, 20]
    assert server_stream.ControllerLog((str(tmp_path / "no-such-program"),)).new_job_numbers() == []


def test_jobs_from_the_controller_log_are_marked_uncertain(tmp_path: Path) -> None:
    words = f"{str(tmp_path / 'f')!r}, 'none', 'none', 'none', ('printf', 'JobId=5\\n')"
    code = f"from agent.roles.server_stream import stream_events; stream_events({words})"
    with subprocess.Popen([sys.executable, "-c", code], cwd=NODE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            while not isinstance(news := parse_event(process.stdout.readline()), Told):
                assert process.poll() is None
        finally:
            process.kill()
    assert news == Told((5,), certain=False)


def test_job_change_file_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "turns"
    head = relay.NodeMessages(str(tmp_path / "reports"), str(tmp_path / "f"), str(file))
    relay.MOST_TURNS, before = 1000, relay.MOST_TURNS
    try:
        for number in range(100):
            head.receive(beat(f"a.{number}", number), 1.0, 1.0)
    finally:
        relay.MOST_TURNS = before
    assert not file.exists() or file.stat().st_size < 1100
