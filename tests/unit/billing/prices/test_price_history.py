"""Which prices an apply records."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from headway.billing.prices.price_history import current_prices
from headway.domain.billing.cost_settings import CostSettings
from headway.domain.billing.ledger import NodePrice
from tests.support.clusters import builders

NOW = 1000.0


def test_several_reserved_groups_stay_reserved_at_the_next_apply() -> None:
    """Before, all reserved groups but the first counted as removed, and their unused machines were no longer billed."""
    main = builders.cluster().groups[0]
    groups = tuple(replace(main, name=name, reserved=True, nodes=3, spares=0) for name in ("a", "b", "c"))
    cluster = replace(builders.cluster(), groups=groups)
    known = current_prices(cluster, [], 0.0)
    assert [(price.group, price.reserved) for price in current_prices(cluster, known, NOW)] == [
        ("a", 3), ("b", 3), ("c", 3),
    ]  # fmt: skip


def test_fixed_costs_are_priced_like_a_reserved_machine_and_end_when_they_leave_the_file() -> None:
    both = {"head": Decimal("1.5"), "disks": Decimal("0.5")}
    with_both = replace(builders.cluster(), costs=CostSettings(fixed_usd_per_hour=both))
    known = current_prices(with_both, [], 0.0)
    one = replace(builders.cluster(), costs=CostSettings(fixed_usd_per_hour={"head": Decimal(2)}))
    found = [price for price in current_prices(one, known, NOW) if price.group.startswith("fixed:")]
    assert found == [
        NodePrice("fixed:head", NOW, Decimal(2), reserved=1),
        NodePrice("fixed:disks", NOW, Decimal("0.5"), reserved=0),
    ]
