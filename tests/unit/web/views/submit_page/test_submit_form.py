"""The submit form says what is wrong with a number."""

from __future__ import annotations

import pytest

from headway.web.views.submit_page.submit_form import SubmitForm, request


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("nodes", "-3", "the number of nodes must be at least 1, not -3"),
        ("nodes", "0", "the number of nodes must be at least 1, not 0"),
        ("tasks", "-1", "the number of tasks must be at least 1, not -1"),
        ("gpus", "-8", "the number of GPUs must be at least 0, not -8"),
        ("nodes", "3.5", "'3.5' is not a number of nodes"),
        ("gpus", "all", "'all' is not a number of GPUs"),
    ],
)
def test_number_outside_its_range_has_a_fault_that_names_the_least(field: str, value: str, message: str) -> None:
    draft = SubmitForm.of({"script": "#!/bin/bash\nhostname\n", field: value})
    sent, faults = request(draft)
    assert sent is None
    assert [(fault.path, fault.message) for fault in faults] == [(field, message)]


def test_no_gpus_is_a_number_of_gpus() -> None:
    sent, faults = request(SubmitForm.of({"script": "#!/bin/bash\nhostname\n", "gpus": "0"}))
    assert sent is not None
    assert faults == []
