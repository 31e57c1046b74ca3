"""Actions of the audit trail in words."""

from __future__ import annotations

import pytest

from headway.web.pages.access.audit import action_words


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("node.drain", "drain node"),
        ("people_page", "open the page people"),
        ("server_key.rotate", "rotate server key"),
        ("job.stacks", "job stacks"),
        ("token.delete", "revoke a token"),
        ("submit", "submit a job"),
    ],
)
def test_action_in_words(action: str, words: str) -> None:
    assert action_words(action) == words
