"""Logins become user names."""

from __future__ import annotations

import pytest

from headway.validation.syntax_rules import user_name_from


@pytest.mark.parametrize(
    ("login", "user"),
    [
        ("ann1", "ann1"), ("ann2", "ann2"), ("a-", "a-"), ("Ann.Lee", "ann-lee"), ("Ann.Lee2", "ann-lee2"), ("9lives", "lives"),
        ("root", "admin"), ("123", "admin"), ("daemon", "daemon-user"), ("x" * 31 + "-.y", "x" * 31),
    ],
)  # fmt: skip
def test_login_becomes_a_user_name(login: str, user: str) -> None:
    assert user_name_from(login) == user
