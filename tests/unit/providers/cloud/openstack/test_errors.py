"""OpenStack's refusals as Headway's."""

from __future__ import annotations

import json

import pytest

from headway.errors import Unanswered
from headway.providers.cloud.openstack.errors import error_of_answer
from headway.providers.cloud.refusals import AuthFailed, NoCapacity, QuotaExceeded, Rejected, Throttled


def answer(status: int, message: str, kind: str = "forbidden") -> Exception:
    return error_of_answer(status, json.dumps({kind: {"code": status, "message": message}}), "compute", "R")


@pytest.mark.parametrize(
    ("message", "name", "have", "need"),
    [
        ("Quota exceeded for cores: Requested 64, but already used 16 of 20 cores", "cores", 20, 80),
        (
            "Quota exceeded for instances, ram: Requested 2, 512, but already used 1, 900 of 10, 1000 instances, ram",
            "ram", 1000, 1412,
        ),
        ("Quota exceeded for cores: Requested 4, but already used 0 of -1 cores", "cores", 0, 0),
        (
            "Resource class:VCPU is over limit of 8 due to current usage 8 and delta 4",
            "class:VCPU", 8, 12,
        ),
        ("Quota exceeded for resources: ['floatingip'].", "floatingip", 0, 0),
        ("VolumeSizeExceedsAvailableQuota: Requested volume exceeds allowed gigabytes quota", "gigabytes", 0, 0),
        ("Maximum number of ports exceeded", "ports", 0, 0),
    ],
)  # fmt: skip
def test_quota_has_name_limit_and_need(message: str, name: str, have: float, need: float) -> None:
    found = answer(403, message)
    assert isinstance(found, QuotaExceeded)
    assert (found.name, found.have, found.need) == (name, have, need)


@pytest.mark.parametrize(
    ("status", "error"), [(401, AuthFailed), (403, AuthFailed), (400, Rejected), (404, Rejected), (409, Rejected),
                          (413, Throttled), (429, Throttled), (500, Unanswered), (503, Unanswered), (504, Unanswered)],
)  # fmt: skip
def test_status_decides_where_the_words_say_nothing(status: int, error: type[Exception]) -> None:
    assert type(answer(status, "so it is")) is error
    assert "so it is" in str(answer(status, "so it is"))


@pytest.mark.parametrize("text", ["", "<html>Bad Gateway</html>", "[]", "{}", "null", '{"a": "b"}'])
def test_answer_of_a_proxy_is_no_crash(text: str) -> None:
    assert isinstance(error_of_answer(502, text, "network", "R"), Unanswered)
    assert isinstance(error_of_answer(400, text, "network", "R"), Rejected)


def test_zone_that_is_gone_is_a_zone_without_machines() -> None:
    assert isinstance(answer(400, "The requested availability zone is not available", "badRequest"), NoCapacity)
