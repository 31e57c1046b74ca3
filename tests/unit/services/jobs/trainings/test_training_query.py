"""Conditions and orders of the table of trainings are parsed strictly."""

from __future__ import annotations

import pytest

from headway.errors import Refused
from headway.services.jobs.trainings.training_query import parse_conditions, parse_metric_key, parse_sort
from headway.store.jobs.trainings import MetricCondition, MetricKey


def test_conditions_name_a_value_an_operator_and_a_number() -> None:
    assert parse_conditions(["loss<2", "val/top.1 acc:highest >= -1e-3", "layer-1/x=0"]) == (
        MetricCondition(MetricKey("loss"), "<", 2.0),
        MetricCondition(MetricKey("val/top.1 acc", "highest"), ">=", -0.001),
        MetricCondition(MetricKey("layer-1/x"), "=", 0.0),
    )


@pytest.mark.parametrize(
    "text", ["loss", "loss<", "<2", "loss<nan", "loss<1e999", "loss:best<2", 'a"b<2', "loss<2;x", "$[0]<2"]
)
def test_other_conditions_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(Refused) as refused:
        parse_conditions([text])
    assert "loss" in (refused.value.hint or "")


def test_sort_has_a_direction() -> None:
    assert parse_sort("") == (None, False)
    assert parse_sort("-acc:highest") == (MetricKey("acc", "highest"), True)
    assert parse_metric_key(" loss:lowest ") == MetricKey("loss", "lowest")
