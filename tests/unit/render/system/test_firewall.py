"""The firewall."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headway.changes.checks.owned_machines import SurveyResult
from headway.cluster.owned.machine_claims import InventorySurvey
from headway.domain.machines.site import OwnedSite
from headway.providers.base import Placement
from headway.providers.ssh.survey_parser import parse_survey, split_sections
from tests.support.clusters import builders

RECORDED = (Path(__file__).parents[3] / "support" / "machines" / "data" / "survey-bare-debian13.txt").read_text()
NOW = 1795282644.0


def parts(**others: str) -> dict[str, list[str]]:
    found = split_sections(RECORDED)
    return {**found, **{name: text.splitlines() for name, text in others.items()}}


def test_firewall_allows_server_addresses_seen_by_machines() -> None:
    """The server's own address is another one to them where something between translates it."""
    seen = {
        name: parse_survey(name, "10.9.0.10", parts(**{"from": address}), NOW, NOW)
        for name, address in {"lab-head": "198.51.100.7", "lab-1-1": "198.51.100.8", "lab-1-2": ""}.items()
    }
    place: Any = Placement("10.9.0.0/24", "10.87.3.1", {}, 0, 0, 0, 0, own=OwnedSite({}, (22,), {}, ("10.87.3.1",), ()))
    judged: Any = SurveyResult((), (), {}, ())
    kept = InventorySurvey(builders.cluster(), None, {}, seen, {}, frozenset(), judged).place(place)  # type: ignore[arg-type]
    assert kept.own is not None
    assert kept.own.server_addresses == ("10.87.3.1", "198.51.100.7", "198.51.100.8")
