"""Passwords and tokens in requirements are found in linear time, and user names of SSH are none."""

from __future__ import annotations

import time

import pytest

from headway.domain.environment import address_with_password


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("--index-url https://ann:pw@pypi.lab/simple", True),
        ("--index-url https://:pw@pypi.lab/simple", True),
        ("--extra-index-url https://glpat-123@pypi.lab/simple", True),
        ("models @ git+https://ghp_123@github.com/lab/models.git@v1", True),
        ("models @ git+ssh://git:pw@github.com/lab/models.git", True),
        ("models @ git+ssh://git@github.com/lab/models.git@v1", False),
        ("models @ ssh://git@github.com/lab/models", False),
        ("models @ git+https://github.com/lab/models.git@v1", False),
        ("models @ https://files.lab:8443/a@b/models.whl", False),
        ("--index-url https://pypi.lab:8443/simple", False),
    ],
)
def test_address_with_password(line: str, found: bool) -> None:
    assert address_with_password(f"numpy\n{line}\n") is found


@pytest.mark.parametrize("piece", ["a", ":", "://", "https://", "http:"])
def test_a_long_line_is_searched_in_linear_time(piece: str) -> None:
    """40,000 letters took half a minute."""
    began = time.process_time()
    assert not address_with_password(piece * 1_000_000)
    assert time.process_time() - began < 10
