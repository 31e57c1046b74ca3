"""Durations in days, hours, minutes and seconds."""

from __future__ import annotations


def split_duration(seconds: int) -> tuple[int, int, int, int]:
    """Returns a duration as (days, hours, minutes, seconds)."""
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    return days, hour, minute, second
