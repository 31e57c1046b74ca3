"""Measures the error of `headway forecast`: a forecast of four weeks at the end of each week of a trace.

    python bench server/demand_forecast [--trace FILE]

FILE is the output of `sacct -P` that `headway whatif --trace` reads. Without one, four made-up years are taken: research groups
that work on weekdays, submit trainings whose lengths are log-normal, grow, and double their use before four deadlines a year.
Prints for each the error of a day and of four weeks, those of two simpler forecasts (each day as a week before; as the mean of
the last week), and the share of days inside the band, which is made for 80 %."""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

from headway.billing.forecasts.demand_forecast import FEWEST_DAYS, HISTORY_DAYS, forecast_days
from headway.domain.billing.ledger import DAY_S
from headway.whatif.sacct_trace import read_sacct

HORIZON = 28
DAYS = 364
WEEKDAYS = (1.0, 1.05, 1.05, 1.0, 0.9, 0.35, 0.4)


def made_up(seed: int) -> list[float]:
    """Returns the GPU-hours of each day of a year."""
    made = random.Random(seed)
    growth, people = made.uniform(0.9, 1.8), made.randint(15, 60)
    deadlines = [made.randint(at, at + 60) for at in range(30, DAYS, 90)]
    days = [0.0] * (DAYS + 30)
    for day in range(DAYS):
        rate = people * (1 + (growth - 1) * day / DAYS) * WEEKDAYS[day % 7]
        rate *= 2.0 if any(0 <= one - day < 14 for one in deadlines) else 1.0
        for _ in range(round(max(0.0, made.gauss(rate, rate**0.5 * 1.5)))):
            hours, gpus = (
                min(24 * 14, made.lognormvariate(0.7, 1.6)),
                made.choices((1, 2, 4, 8, 16, 64), (40, 15, 15, 20, 8, 2))[0],
            )
            at = float(day) + made.uniform(0.3, 0.9)
            while hours > 0:
                part = min(hours, (int(at) + 1 - at) * 24)
                days[int(at)] += part * gpus
                hours, at = hours - part, float(int(at) + 1)
    return days[:DAYS]


def of_trace(file: Path) -> list[float]:
    """Returns the GPU-hours of each whole UTC day of a trace."""
    jobs, _ = read_sacct(file.read_text(encoding="utf-8"), time.time())
    ran = [(job.start, job.end, job.all_gpus) for job in jobs if job.start and job.end > job.start and job.all_gpus]
    first, last = int(min(start for start, _, _ in ran) // DAY_S) + 1, int(max(end for _, end, _ in ran) // DAY_S)
    days = [0.0] * (last - first)
    for start, end, gpus in ran:
        for day in range(max(first, int(start // DAY_S)), min(last, int(end // DAY_S) + 1)):
            seconds = min(end, (day + 1) * DAY_S) - max(start, day * DAY_S)
            days[day - first] += seconds * gpus / 3600
    return days


def measure(name: str, days: Sequence[float]) -> None:
    """Prints the errors over all weeks of these days."""
    methods: dict[str, Callable[[Sequence[float]], list[float]]] = {
        "as a week before": lambda past: [past[-7 + ahead % 7] for ahead in range(HORIZON)],
        "mean of the week": lambda past: [fmean(past[-7:])] * HORIZON,
    }
    missed: dict[str, list[float]] = {}
    actual_days = actual_sums = inside = total = 0.0
    for origin in range(max(FEWEST_DAYS * 2, 56), len(days) - HORIZON + 1, 7):
        past, coming = days[max(0, origin - HISTORY_DAYS) : origin], days[origin : origin + HORIZON]
        found = forecast_days(past, HORIZON)
        if found is None:
            continue
        for day, actual in zip(found.days, coming, strict=True):
            if day.low is not None and day.high is not None:
                inside += day.low <= actual <= day.high
                total += 1
        actual_days += sum(coming)
        actual_sums += sum(coming)
        for method, expected in {
            "headway forecast": [day.expected for day in found.days],
            **{method: made(past) for method, made in methods.items()},
        }.items():
            sums = missed.setdefault(method, [0.0, 0.0])
            sums[0] += sum(abs(one - actual) for one, actual in zip(expected, coming, strict=True))
            sums[1] += abs(sum(expected) - sum(coming))
    for method, (of_days, of_sums) in missed.items():
        print(f"{name}  {method:17} day {of_days / actual_days:6.1%}  four weeks {of_sums / actual_sums:6.1%}")
    print(f"{name}  days inside the band: {inside / total:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="bench server/demand_forecast", description=__doc__)
    parser.add_argument("--trace", type=Path, help="output of sacct -P")
    options = parser.parse_args(sys.argv[1:])
    if options.trace:
        measure(options.trace.name, of_trace(options.trace))
        return
    for seed in range(1, 5):
        measure(f"year {seed}", made_up(seed))


if __name__ == "__main__":
    main()
