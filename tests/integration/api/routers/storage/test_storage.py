"""The storage API reports lost volumes, usage and speed, and a hanging volume does not block the program that measures
them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.domain.incident import FaultAction
from headway.domain.storage.folders import StorageFolders, Volume
from headway.domain.storage.volume_space import VolumeSpace
from headway.errors import Unreachable
from headway.schemas.storage.volumes import VolumeSpeedOut
from headway.transport.remote_program import program_source
from tests.support.clusters import builders
from tests.support.servers.server_fakes import Server, reading

PATH = "/api/v1/clusters/lab/storage"
VOLUMES = (Volume("data", "/data", "nfs4", "filer:/data"), Volume("ref", "/data/ref", "lustre", "mds:/ref", ("ro",)))


async def look(server: Server, *nodes: Any, rooms: Any = ()) -> dict[str, Any]:
    server.backend.clusters["lab"] = {"storage": StorageFolders(volumes=VOLUMES)}
    server.backend.answers |= {"read": reading(nodes=nodes), "machines": (), "volume_space": rooms}
    await server.apply()
    answer = await (await server.client("eve", "viewer")).get(PATH)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_volume_is_lost_only_on_nodes_that_report_it(server: Server) -> None:
    await server.store.incidents.open(
        "lab", "lab-1-2", "mounts: /data is read-only", FaultAction.MOUNT, 1000.0, {}, score=1
    )
    nodes = [builders.node(f"lab-1-{number}", "IDLE") for number in range(1, 5)]
    nodes[0] = replace(nodes[0], states=("IDLE", "DRAIN"), reason="volumes: /data/ref is not mounted")
    nodes[3] = replace(nodes[3], states=("DOWN",), reason="volumes: /data is not mounted")
    found = {one["path"]: one for one in (await look(server, *nodes))["volumes"]}
    assert {path: one["nodes"] for path, one in found.items()} == {
        "/home": 3,
        "/scratch": 3,
        "/data": 2,
        "/data/ref": 2,
    }
    assert found["/data"]["lost"] == [{"node": "lab-1-2", "why": "mounts: /data is read-only"}]
    assert found["/data/ref"]["lost"] == [{"node": "lab-1-1", "why": "volumes: /data/ref is not mounted"}]
    assert (found["/data/ref"]["type"], found["/data/ref"]["read_only"], found["/home"]["type"]) == ("lustre", True, "")


async def test_storage_reports_usage_and_measurement_errors(server: Server) -> None:
    rooms = (VolumeSpace("/home", 1000, 400), VolumeSpace("/data", None, None, "no answer for 5 s"))
    found = await look(server, rooms=rooms)
    home, scratch, data, _ = found["volumes"]
    assert [home[key] for key in ("size_bytes", "used_bytes", "free_bytes")] == [1000, 600, 400]
    assert (scratch["size_bytes"], data["used_bytes"], data["fault"]) == (None, None, "no answer for 5 s")
    assert found["stale"] == ""


async def test_storage_lists_volumes_when_the_head_is_unreachable(server: Server) -> None:
    found = await look(server, rooms=Unreachable("lab-head does not answer"))
    assert found["stale"] == "lab-head does not answer"
    assert [one["path"] for one in found["volumes"]] == ["/home", "/scratch", "/data", "/data/ref"]


async def test_storage_does_not_query_a_head_known_to_be_down(server: Server) -> None:
    await look(server, builders.node("lab-1-1", "IDLE"))
    server.state.live.store_snapshot(replace(server.state.live.snapshot("lab"), stale="lab-head is away"))
    before = [name for name, *_ in server.backend.calls].count("volume_space")
    found = (await (await server.client("eve", "viewer")).get(PATH)).json()
    assert (found["stale"], [name for name, *_ in server.backend.calls].count("volume_space")) == (
        "lab-head is away",
        before,
    )


async def test_storage_keeps_the_latest_benchmark_of_each_volume(server: Server) -> None:
    await look(server)
    olga = await server.client("olga", "operator")
    for speed in (100.0, 900.0):
        server.backend.answers["measure_volumes"] = (VolumeSpeedOut(path="/scratch", write_mib_s=speed),)
        assert (await olga.post(f"{PATH}/bench", json={"node": "lab-1-1", "mib": 64})).status_code == 200
    server.backend.answers["measure_volumes"] = (VolumeSpeedOut(path="/data", error="Read-only file system"),)
    await olga.post(f"{PATH}/bench", json={})
    measured = {one["path"]: one["measured"] for one in (await olga.get(PATH)).json()["volumes"]}
    assert measured["/home"] is None
    assert [measured["/scratch"][key] for key in ("write_mib_s", "node", "mib", "at")] == [900.0, "lab-1-1", 64, 1000.0]
    assert [measured["/data"][key] for key in ("error", "node")] == ["Read-only file system", "lab-head"]
    await server.store.clusters.delete("lab", delete_data=True)
    assert await server.store.volume_speeds.of_cluster("lab") == {}


async def test_storage_page_shows_usage_and_lost_volumes(server: Server) -> None:
    node = builders.node("lab-1-1", "IDLE", "DRAIN", reason="volumes: /data is not mounted")
    await look(server, node, rooms=(VolumeSpace("/home", 4 << 40, 1 << 40), VolumeSpace("/data", 1000, 20)))
    page = (await (await server.client("eve", "viewer")).get("/clusters/lab/storage")).text
    for words in ("lost on 1 of 1", "/data is not mounted", "3.0 TiB of 4.0 TiB", "75 %", "No dataset has a version"):
        assert words in page
    assert "storage bench" not in page, "a viewer may not"


def volumes(
    tmp_path: Path, ask: dict[str, Any], *, hangs: float = 0.0, answer_s: float = 20.0
) -> dict[str, dict[str, Any]]:
    """What the program says of each place; /hangs lasts for `hangs` seconds, whatever is done to who looks at it."""
    looks = "time.sleep(HANGS if path == '/hangs' else 0); stats = os.statvfs('/' if path == '/hangs' else path)"
    code = (
        program_source("volume_space")
        .replace('LOOKS = "/run/headway/looks"', f"LOOKS = {str(tmp_path / 'looks')!r}")
        .replace("ANSWER_S = 5.0", f"ANSWER_S = {answer_s}")
        .replace("stats = os.statvfs(path)", looks.replace("HANGS", str(hangs)))
        .replace("os.kill(child, signal.SIGKILL)", "pass")  # as in a file system that does not let go of it
    )
    assert str(tmp_path) in code
    argv = [sys.executable, "-I", "-S", "-c", code, json.dumps(ask)]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    return {row["path"]: row for row in map(json.loads, ran.stdout.splitlines())}


def test_volume_space_program_answers_for_each_path(tmp_path: Path) -> None:
    here, none = str(tmp_path), str(tmp_path / "none")
    rows = volumes(tmp_path, {"paths": [here, none]})
    assert 0 < rows[here]["free"] <= rows[here]["size"]
    assert rows[none]["error"] == "No such file or directory"


def test_volume_space_program_skips_unmounted_paths(tmp_path: Path) -> None:
    rows = volumes(tmp_path, {"paths": ["/", str(tmp_path)], "mounted_s": 0.1})
    assert rows["/"]["size"] > 0
    assert rows[str(tmp_path)]["error"] == "is not mounted"


def test_hanging_volume_delays_no_other_and_is_probed_once(tmp_path: Path) -> None:
    rows = volumes(tmp_path, {"paths": ["/hangs", "/"]}, hangs=600, answer_s=5.0)
    assert rows["/hangs"]["error"] == "no answer for 5 s"
    assert rows["/"]["size"] > 0
    began = time.monotonic()
    for _ in range(3):
        rows = volumes(tmp_path, {"paths": ["/hangs", "/"]}, hangs=0, answer_s=5.0)
        assert rows["/hangs"]["error"].startswith("no answer for "), "who looks first still does: no other has begun"
        assert rows["/"]["size"] > 0
    assert time.monotonic() - began < 300
    lock = next(path for path in (tmp_path / "looks").iterdir() if "hangs" in path.name)
    holders = [link for link in Path("/proc").glob("[0-9]*/fd/*") if points_to(link, lock)]
    assert len(holders) == 1
    os.kill(int(holders[0].parts[2]), signal.SIGKILL)
    assert volumes(tmp_path, {"paths": ["/hangs"]}, hangs=0)["/hangs"]["size"] > 0


def points_to(link: Path, file: Path) -> bool:
    try:
        return link.readlink() == file
    except OSError:
        return False
