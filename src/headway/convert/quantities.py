"""Times and amounts of memory as schedulers and Kubernetes write them, and as sbatch reads them."""

from __future__ import annotations

import math
import re

_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgGtTpP]?)(i?)([bBwW]?)")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}
_CPU = re.compile(r"(\d+(?:\.\d+)?)(m?)")
_GO_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhdw])")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
LARGEST = 10**12


def slurm_time(seconds: float) -> str:
    """Returns a time limit for sbatch: 90061 s is "1-01:01:01". Raises ValueError for no time."""
    whole = math.ceil(seconds)
    if not 0 < whole < LARGEST:
        raise ValueError("is no time limit")
    days, rest = divmod(whole, 86400)
    clock = f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"
    return f"{days}-{clock}" if days else clock


def clock_seconds(text: str, *, unit_s: int = 1) -> int:
    """Returns the seconds of [[HH:]MM:]SS. `unit_s`: seconds of the last part, 60 for HH:MM. Raises ValueError."""
    parts = text.strip().split(":")
    if len(parts) > (3 if unit_s == 1 else 2) or not all(part.isdecimal() and len(part) < 10 for part in parts):
        raise ValueError("is no time")
    seconds = 0
    for part in parts:
        seconds = seconds * 60 + int(part)
    return seconds * unit_s


def slurm_seconds(text: str) -> int | None:
    """Returns the seconds of a time limit of sbatch, None for no limit. Raises ValueError."""
    if text.lower() in ("infinite", "unlimited", "-1", "0"):
        return None
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if len(parts) > 3 or not all(part.isdecimal() and len(part) < 10 for part in [*parts, *([days] if dash else [])]):
        raise ValueError("is no time")
    numbers = [int(part) for part in parts]
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
        return int(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    if len(numbers) == 3:
        return numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    return numbers[0] * 60 + (numbers[1] if len(numbers) == 2 else 0)


def duration_seconds(text: str) -> float:
    """Returns the seconds of 90m, 1h30m or 2d. Raises ValueError."""
    parts = _GO_TIME.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text.replace(" ", ""):
        raise ValueError("is no time")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def memory_mib(text: str, *, default_unit: str = "", thousands: bool = False) -> int:
    """Returns MiB, rounded up, of 64gb, 4000M, 64Gi. `default_unit`: unit of a bare number, "" for bytes. `thousands`: as
    Kubernetes counts, where 1G is 10^9 bytes and 1Gi is 2^30. Raises ValueError."""
    match = _MEMORY.fullmatch(text.strip())
    if match is None or (match[4] in "wW" and match[4]):
        raise ValueError("is no amount of memory")
    unit = match[2].upper() or ("" if match[4] else default_unit)
    base = 1000 if thousands and not match[3] else 1024
    found = math.ceil(float(match[1]) * float(base) ** _POWERS[unit] / 1024**2)
    if not 0 < found < LARGEST:
        raise ValueError("is no amount of memory")
    return found


def slurm_memory(mib: int) -> str:
    """Returns an amount of memory for sbatch: "64G" or "1500M"."""
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


def cpu_count(text: str) -> int:
    """Returns whole CPUs, rounded up, of Kubernetes' 4, 0.5 or 1500m. Raises ValueError."""
    match = _CPU.fullmatch(text.strip())
    if match is None:
        raise ValueError("is no number of CPUs")
    found = math.ceil(float(match[1]) / (1000 if match[2] else 1))
    if not 0 < found < LARGEST:
        raise ValueError("is no number of CPUs")
    return found


def whole_number(text: str) -> int:
    """Returns a whole number from 1. Raises ValueError."""
    if not text.strip().isdecimal() or not 0 < int(text) < LARGEST:
        raise ValueError("is no whole number from 1")
    return int(text)
