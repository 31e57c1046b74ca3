"""Hosts of addresses: names and IP addresses."""

from __future__ import annotations

import ipaddress


def is_loopback(host: str) -> bool:
    """Returns whether only this machine reaches the host."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bracketed(host: str) -> str:
    """Returns the host as it is written in an address: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host
