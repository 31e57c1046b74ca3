"""Hosts that only this machine reaches, and how they are written in addresses."""

from __future__ import annotations

import pytest

from headway.validation.hosts import bracketed, is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "10.0.0.9", "localhost.example.org", "127.0.0.1.example.org"])
def test_other_hosts(host: str) -> None:
    assert not is_loopback(host)


def test_ipv6_is_in_brackets() -> None:
    assert (bracketed("::1"), bracketed("10.0.0.9"), bracketed("hw.example.org")) == (
        "[::1]", "10.0.0.9", "hw.example.org"
    )  # fmt: skip
