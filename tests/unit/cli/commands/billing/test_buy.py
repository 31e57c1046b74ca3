"""buy prints the ways to buy, the cheapest mix and its sensitivity."""

from __future__ import annotations

from headway.schemas.billing.purchase import MixPartOut, PurchaseOut, SensitivityOut, WayToBuyOut
from tests.support.cli_fakes import Cli, cli

__all__ = ["cli"]  # a fixture

FOUND = PurchaseOut(
    cluster="lab", gpu="h100", start=1_795_000_000, hours=2208, usage_gpu_hours=50_000, present_gpu_hours=70_000, peak_gpus=64,
    ways=[
        WayToBuyOut(name="on-demand", fixed_usd_h=0, used_usd_h=2.5, origin="aws p5.48xlarge, of 2026-09-24"),
        WayToBuyOut(name="reserved", fixed_usd_h=2.7, used_usd_h=0, origin="given"),
        WayToBuyOut(name="owned", fixed_usd_h=1.05, used_usd_h=0.14, break_even_h=326, origin="33,000 USD a GPU: assumption"),
    ],
    mix=[
        MixPartOut(name="on-demand", gpus=40, gpu_hours=5000, usd=12_500),
        MixPartOut(name="reserved", gpus=0, gpu_hours=0, usd=0),
        MixPartOut(name="owned", gpus=24, gpu_hours=45_000, usd=61_939),
    ],
    usd=74_439, all_on_demand_usd=125_000,
    sensitivity=[SensitivityOut(name="usage", low_usd=60_000, high_usd=90_000, low_fixed_gpus=20, high_fixed_gpus=28)],
    assumptions=["interest is not counted"],
)  # fmt: skip


def test_the_mix_is_printed(cli: Cli) -> None:
    cli.api.on("billing.purchase", FOUND)
    ended = cli("buy", "lab", "--capex", "33000", "--spot-share", "0.3")
    ((_, (name, request), _),) = [call for call in cli.api.calls if call[0] == "billing.purchase"]
    assert (name, request.capex, request.spot_share, request.days) == ("lab", 33_000, 0.3, 92)
    lines = [line.split() for line in ended.out.splitlines()]
    assert ["owned", "1.05", "0.14", "326", "h/month", "24", "45,000", "61,939"] in [line[:8] for line in lines]
    assert ["reserved", "2.70", "0.00", "never", "0"] in [line[:5] for line in lines]
    assert "74,439 USD; all on demand: 125,000 USD (50,561 USD more)" in ended.out
    assert ["usage", "60,000", "to", "90,000", "20,", "28"] in lines
    assert "assumption: interest is not counted" in ended.err
