"""Break-even between ways to buy, and the cheapest mix for a usage."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.billing.purchase_mix import (
    HOURS_A_MONTH,
    OwnedGpu,
    WayToBuy,
    break_even_hours,
    cheapest_mix,
    hours_by_gpu,
    sensitivity,
)

ON_DEMAND = WayToBuy("on-demand", 0, 4.0)
RESERVED = WayToBuy("reserved", 2.0, 0)
SPOT = WayToBuy("spot", 0, 2.5)
USAGE = st.lists(st.floats(0, 12).map(lambda value: round(value * 4) / 4), min_size=1, max_size=48)
SMALL_USAGE = st.lists(st.integers(0, 20).map(lambda value: value / 4), min_size=1, max_size=12)
PRICE = st.floats(0.01, 20)


def test_an_owned_gpu_costs_its_loss_of_value_and_its_power() -> None:
    way = OwnedGpu(
        40_000, years=4, resale_share=0.25, watts=1000, machine_share=1, pue=1, usd_per_kwh=0.1, running_share=0
    ).way()
    assert way.fixed_usd_h == pytest.approx(7500 / 8760)
    assert way.used_usd_h == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("fixed", "hours"),
    [
        (RESERVED, HOURS_A_MONTH / 2),
        (WayToBuy("owned", 3.0, 1.0), HOURS_A_MONTH),
        (WayToBuy("owned", 5.0, 0), None),
        (WayToBuy("owned", 1.0, 4.5), None),
        (WayToBuy("free", 0, 0), 0),
    ],
)
def test_break_even(fixed: WayToBuy, hours: float | None) -> None:
    assert break_even_hours(fixed, ON_DEMAND) == hours


def test_gpus_that_are_needed_often_are_reserved_and_others_rented() -> None:
    mix = cheapest_mix([2, 2, 2, 10], [ON_DEMAND, RESERVED])
    assert [(part.name, part.gpus, part.gpu_hours) for part in mix.parts] == [("on-demand", 8, 8), ("reserved", 2, 8)]
    assert mix.usd == 8 * 4 + 2 * 4 * 2


def test_spot_serves_at_most_its_share() -> None:
    mix = cheapest_mix([2, 2, 2, 10], [ON_DEMAND, RESERVED], SPOT, 0.25)
    assert mix.parts[-1].gpu_hours == 4
    assert mix.usd < cheapest_mix([2, 2, 2, 10], [ON_DEMAND, RESERVED]).usd


@given(USAGE)
def test_all_gpu_hours_are_served(usage: list[float]) -> None:
    assert sum(hours_by_gpu(usage)) == pytest.approx(sum(usage))
    needed = hours_by_gpu(usage)
    assert needed == sorted(needed, reverse=True)
    mix = cheapest_mix(usage, [ON_DEMAND, RESERVED], SPOT, 0.3)
    assert sum(part.gpu_hours for part in mix.parts) == pytest.approx(sum(usage))


@given(USAGE, PRICE, PRICE, PRICE)
def test_no_number_of_fixed_gpus_is_cheaper(usage: list[float], by_hour: float, fixed: float, used: float) -> None:
    ways = [WayToBuy("on-demand", 0, by_hour), WayToBuy("owned", fixed, used)]
    found = cheapest_mix(usage, ways).usd
    for gpus in range(14):
        tried = sum(gpus * fixed + min(value, gpus) * used + max(0.0, value - gpus) * by_hour for value in usage)
        assert found <= tried + 1e-6


@pytest.mark.parametrize(
    ("usage", "share", "usd"),
    [
        ([1] * 700, 0.9, 840),
        ([2] * 700, 0.49, 2828),
        ([8] * 700, 0.1, 15_680),
        ([1] * 700, 1, 700),
        ([1] * 700, 0, 2100),
    ],
)
def test_spot_serves_a_part_of_the_hours_of_a_gpu(usage: list[float], share: float, usd: float) -> None:
    mix = cheapest_mix(usage, [WayToBuy("on-demand", 0, 3)], WayToBuy("spot", 0, 1), share)
    assert mix.usd == pytest.approx(usd)
    assert mix.parts[-1].gpu_hours == pytest.approx(share * sum(usage))


@given(
    st.lists(st.integers(0, 20).map(lambda value: value / 4), min_size=1, max_size=12),
    st.floats(0, 1),
    PRICE,
    PRICE,
    st.floats(0, 3),
    PRICE,
)
def test_no_other_mix_with_spot_is_cheaper(
    usage: list[float], share: float, rented: float, fixed: float, used: float, by_spot: float
) -> None:
    """Each GPU in each way, with all hours on spot that the share allows."""
    reserved, owned = WayToBuy("reserved", fixed, 0), WayToBuy("owned", fixed / 2, min(used, by_spot))
    ways, needed = [WayToBuy("on-demand", 0, rented), reserved, owned], hours_by_gpu(usage)
    mix = cheapest_mix(usage, ways, WayToBuy("spot", 0, by_spot), share)
    assert sum(part.gpu_hours for part in mix.parts) == pytest.approx(sum(usage))
    for part in mix.parts:
        assert (part.gpus == 0) == (part.gpu_hours < 1e-9), part
    assert mix.parts[-1].gpu_hours <= share * sum(usage) + 1e-6
    for chosen in product(ways, repeat=len(needed)):
        hours = sum(each for each, way in zip(needed, chosen, strict=True) if way is ways[0])
        saved = max(0.0, rented - by_spot) * min(hours, share * sum(needed))
        tried = sum(way.cost(each, len(usage)) for each, way in zip(needed, chosen, strict=True)) - saved
        assert mix.usd <= tried + 1e-6


def test_sensitivity_has_the_price_of_spot() -> None:
    found = sensitivity([8] * 10, [ON_DEMAND], SPOT, 0.25)
    assert list(found) == ["price on-demand", "price spot", "usage"]
    assert [mix.usd for mix in found["price spot"]] == pytest.approx([60 * 4 + 20 * 2, 60 * 4 + 20 * 3])


@given(USAGE)
def test_more_choice_and_lower_prices_never_cost_more(usage: list[float]) -> None:
    rented = cheapest_mix(usage, [ON_DEMAND]).usd
    both = cheapest_mix(usage, [ON_DEMAND, RESERVED]).usd
    assert cheapest_mix(usage, [ON_DEMAND, RESERVED], SPOT, 0.5).usd <= both + 1e-9 <= rented + 2e-9
    for less, more in sensitivity(usage, [ON_DEMAND, RESERVED]).values():
        assert less.usd <= both + 1e-6 <= more.usd + 2e-6
