"""Parts of GPUs in usage, chargeback and reports: each counts and costs its share of a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.catalog.mig_profiles import lay_out
from headway.domain.machines.gpu_parts import GpuParts
from tests.support.billing.billing_cluster import CHEAP, Accounting, H, at, got, lab, machines, run
from tests.support.clusters import builders

HALVES = GpuParts(mig=lay_out(builders.H100, {"3g.40gb": 2}))


async def test_mig_instances_cost_their_compute_slices(tmp_path: Path) -> None:
    """A node has 8 GPUs for 8 USD an hour, so a GPU-hour costs 1 USD and an hour of 3g three sevenths of it."""
    accounting = Accounting()
    async with lab(tmp_path, accounting, parts=HALVES) as server:
        await machines(server, 1, ended=10 * H)
        accounting.runs = [
            run(1, 0, 7 * H, gpus=3 / 7, gpu_type="3g.40gb", cpus=12),
            run(2, 0, 7 * H, gpus=6 / 7, gpu_type="3g.40gb", cpus=24, team="speech", user="sam", state="NODE_FAIL"),
        ]
        at(server, 20 * H)
        ann = await server.client()
        used = await got(ann, "usage?by=team&start=2026-10&end=2026-11")
        rows = {row["by"]["team"]: (row["gpu_hours"], row["lost_gpu_hours"], row["usd"]) for row in used["rows"]}
        assert rows == {"vision": (3.0, 0.0, 3.0), "speech": (6.0, 6.0, 6.0)}
        by_type = await got(ann, "usage?by=gpu&start=2026-10&end=2026-11")
        assert [(row["by"], row["gpu_hours"]) for row in by_type["rows"]] == [({"gpu": "3g.40gb"}, 9.0)]
        paid = await got(ann, "chargeback?period=2026-10")
        teams = {team["team"]: team for team in paid["teams"]}
        assert (teams["vision"]["productive_usd"], teams["speech"]["lost_usd"]) == (3.0, 6.0)
        assert paid["invoice_total_usd"] == 80.0
        runs = (await got(ann, "usage/runs?start=2026-10"))["runs"]
        assert [(one["job"], one["gpus"], one["usd"]) for one in runs] == [
            (2, pytest.approx(6 / 7), 6.0),
            (1, pytest.approx(3 / 7), 3.0),
        ]
        goodput = await got(ann, "goodput?period=2026-10")
        assert goodput["total"]["lost_gpu_hours"] == 6.0


@pytest.mark.parametrize(("parts", "of_run"), [(GpuParts(shards=4), {"shards": 1}), (GpuParts(mps=True), {"mps": 25})])
async def test_shards_and_mps_cost_their_share(tmp_path: Path, parts: GpuParts, of_run: dict[str, int]) -> None:
    accounting = Accounting()
    async with lab(tmp_path, accounting, parts=parts) as server:
        await machines(server, 1, ended=10 * H)
        accounting.runs = [run(1, 0, 8 * H, gpus=0, cpus=1, **of_run)]
        at(server, 20 * H)
        ann = await server.client()
        used = await got(ann, "usage?by=team,gpu&start=2026-10&end=2026-11")
        assert [(row["by"], row["gpu_hours"], row["usd"]) for row in used["rows"]] == [
            ({"team": "vision", "gpu": CHEAP.gpu_type}, 2.0, 2.0)
        ]
