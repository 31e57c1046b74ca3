"""Reasons that people give for nodes: they never count as Headway's, and a reboot names its person."""

import pytest

from headway.domain.slurm.node_reasons import REBOOTS, is_headway_reason, person_reason, rebooting_person


@pytest.mark.parametrize("person", ["olga", "headway"])
def test_a_persons_reason_is_not_headways_and_names_who_reboots(person: str) -> None:
    reason = person_reason(person, REBOOTS)
    assert not is_headway_reason(reason)
    assert rebooting_person(reason) == person


def test_other_reasons_are_no_reboot() -> None:
    assert rebooting_person(person_reason("olga", "disk swap")) == ""
    assert rebooting_person("Not responding") == ""
