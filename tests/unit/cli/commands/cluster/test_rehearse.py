"""rehearse submits the jobs of a site's accounting on a cluster in containers, and says which ones Slurm refuses."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway.schemas.clusters import ClusterOut
from headway.schemas.submission.exec_commands import ExecOut
from tests.support.cli_fakes import Cli, cli
from tests.support.slurm_sites import FILES
from tests.support.slurm_states import CLUSTER

__all__ = ["cli"]  # a fixture
SACCT = (
    "JobID|User|Account|Partition|Submit|Start|ElapsedRaw|TimelimitRaw|NNodes|ReqCPUS|ReqTRES|State\n"
    "7|alice|physics|cpu|1000|1060|600|60|1|4|cpu=4,node=1|COMPLETED\n8|alice|physics|cpu|1600|0|0|9999|1|4|cpu=4,node=1|PENDING\n"
    "9|gone|physics|cpu|1600|0|0|9999|1|4|cpu=4,node=1|PENDING\n"
)
EVENTS = [
    {"kind": "submitted", "job": 0}, {"kind": "refused", "job": 1, "why": "Batch job submission failed: Too long"},
    {"kind": "ended", "job": 0, "state": "COMPLETED", "wait": 2},
]  # fmt: skip


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {**FILES, "sacct.txt": SACCT}.items():
        (tmp_path / "old" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "old" / name).write_text(text)
    return tmp_path


def prepared(cli: Cli, provider: str = "local") -> list[str]:
    """Registers a cluster that says EVENTS; returns the programs that it will be sent."""
    programs: list[str] = []

    def stream(cluster: str, argv: list[str], user: str, read: Callable[[], bytes]) -> Iterator[tuple[str, bytes]]:
        assert (cluster, argv, user) == ("helix", ["python3", "-"], "root")
        programs.append(b"".join(iter(read, b"")).decode())
        text = "".join(json.dumps(event) + "\n" for event in EVENTS).encode()
        yield from (("out", text[:20]), ("out", text[20:]), ("code", b"0"))

    parts = "".join(f"FILE {len(text.encode())} {path}\n{text}\n" for path, text in CLUSTER.items())
    cli.api.on("commands.exec", ExecOut(code=0, stdout_b64=base64.b64encode(f"{parts}END\n".encode()).decode()))
    cli.api.on("clusters.get", ClusterOut.model_construct(name="helix", provider=provider))
    cli.api.on("commands.stream", stream)
    return programs


def test_refusals_and_waits_are_printed(cli: Cli, site: Path) -> None:
    programs = prepared(cli)
    done = cli("rehearse", "helix", "--from", "old", "--minutes", "1")
    assert done.code == 1, done.err
    first, *lines = done.out.splitlines()
    assert first == "read 3 jobs; submitting 2 in 1 min, 10 times as fast"
    assert "refused by Slurm: Too long: 1 job: 8" in lines
    assert "not replayed: 1: user gone is not in the file" in lines
    (row,) = [line.split() for line in lines if line.startswith("cpu ")]
    assert row == ["cpu", "1", "1", "1", "0:01:00", "0:01:00", "0:00:20", "0:00:20"]
    assert '"user": "alice"' in programs[0]


def test_json_names_the_jobs(cli: Cli, site: Path) -> None:
    prepared(cli)
    found = json.loads(cli("rehearse", "helix", "--from", "old", "--minutes", "1", "-o", "json").out)
    assert (found["read"], found["submitted"], found["refused"]) == (3, 2, {"Too long": ["8"]})


def test_cluster_that_is_no_rehearsal_is_refused(cli: Cli, site: Path) -> None:
    prepared(cli, provider="ssh")
    done = cli("rehearse", "helix", "--from", "old")
    assert (done.code, "helix is no rehearsal" in done.err) == (1, True)
    assert cli.api.named("commands.stream") == []


def test_folder_without_accounting_is_refused(cli: Cli, site: Path) -> None:
    prepared(cli)
    (site / "old/sacct.txt").unlink()
    assert "old has no sacct.txt" in cli("rehearse", "helix", "--from", "old").err
