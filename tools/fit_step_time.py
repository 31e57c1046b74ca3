"""Fits the parameters of the step time to the published runs: `python tools/fit_step_time.py [--write DAY]`."""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from headway.sizing.parameters import FITTED, StepParameters
from headway.sizing.run_rows import MeasuredRun, published_runs
from headway.sizing.step_time import tokens_per_second_per_gpu

OUT = Path(__file__).resolve().parents[1] / "src/headway/sizing/data/step_time.json"
# What the parameters are expected to be before any run is seen, as StepParameters has them, and by how much (in logarithms) they
# may be wrong: few rows (a source alone) move a parameter only where they say something about it.
PRIOR = StepParameters()
WIDTH = {"matmul": 0.1, "hopper": 0.15, "half_side": 0.6, "attention": 0.3, "attention_hopper": 0.3, "element_bytes": 0.4,
         "loss_bytes": 0.4, "launch_s": 1.0, "link": 0.3, "network": 0.4, "overlap": 0.25, "straggler": 0.7}  # fmt: skip
NOISE = 0.06  # of a row: what no model explains
HUBER = 1.5  # errors beyond that many times the noise count linearly
FOLDS, SEED = 10, 7


def fit(runs: Sequence[MeasuredRun]) -> StepParameters:
    """Returns the parameters with the least squares of logarithms, by Gauss-Newton steps with damping."""
    weights = {source: _weight(sum(run.source == source for run in runs)) for source in {run.source for run in runs}}

    def residuals(logs: Sequence[float]) -> list[float]:
        parameters = _parameters(logs)
        found = []
        for run in runs:
            error = math.log(tokens_per_second_per_gpu(run.run, parameters) / run.tokens_s_gpu) / NOISE
            size = abs(error)
            if size > HUBER:
                error = math.copysign(math.sqrt(HUBER * (2 * size - HUBER)), error)
            found.append(error * weights[run.source])
        return found + [
            (log - start) / WIDTH[name] for log, start, name in zip(logs, _logs(PRIOR), FITTED, strict=True)
        ]

    return _parameters(_least_squares(residuals, _logs(PRIOR)))


def errors(runs: Sequence[MeasuredRun], parameters: StepParameters) -> list[float]:
    """Returns the relative error of each run."""
    return [tokens_per_second_per_gpu(run.run, parameters) / run.tokens_s_gpu - 1 for run in runs]


def errors_by_rows(runs: Sequence[MeasuredRun]) -> list[float]:
    """Returns errors of rows that were not in the fit, in FOLDS parts."""
    order = list(runs)
    random.Random(SEED).shuffle(order)
    found: list[float] = []
    for part in range(FOLDS):
        held = order[part::FOLDS]
        found += errors(held, fit([run for index, run in enumerate(order) if index % FOLDS != part]))
    return found


def errors_by_source(runs: Sequence[MeasuredRun]) -> dict[str, list[float]]:
    """Returns errors of each source by the fit to the other sources."""
    sources = sorted({run.source for run in runs})
    return {
        source: errors(
            [run for run in runs if run.source == source], fit([run for run in runs if run.source != source])
        )
        for source in sources
    }


def median_size(values: Sequence[float]) -> float:
    """Returns the median of absolute values."""
    return statistics.median(abs(value) for value in values)


def _weight(rows: int) -> float:
    # Rows of one source err together: 100 of them say less than 100 rows of different sources.
    return min(1.0, math.sqrt(40 / rows))


def _logs(parameters: StepParameters) -> list[float]:
    return [math.log(getattr(parameters, name)) for name in FITTED]


def _parameters(logs: Sequence[float]) -> StepParameters:
    values = {name: math.exp(max(-20.0, min(20.0, log))) for name, log in zip(FITTED, logs, strict=True)}
    values["overlap"] = min(0.98, values["overlap"])
    return replace(PRIOR, **values)


def _least_squares(function: Callable[[Sequence[float]], list[float]], start: list[float]) -> list[float]:
    at, damping = start, 1e-2
    values = function(at)
    cost = sum(value * value for value in values)
    for _ in range(40):
        columns = []
        for index in range(len(at)):
            moved = list(at)
            moved[index] += 1e-4
            columns.append([(new - old) / 1e-4 for new, old in zip(function(moved), values, strict=True)])
        gradient = [sum(a * b for a, b in zip(column, values, strict=True)) for column in columns]
        matrix = [[sum(a * b for a, b in zip(one, two, strict=True)) for two in columns] for one in columns]
        before = cost
        while damping < 1e8:
            damped = [[value * (1 + damping * (i == j)) for j, value in enumerate(row)] for i, row in enumerate(matrix)]
            step = _solve(damped, [-value for value in gradient])
            tried = [value + max(-0.5, min(0.5, move)) for value, move in zip(at, step, strict=True)]
            new_values = function(tried)
            new_cost = sum(value * value for value in new_values)
            if new_cost < cost:
                at, values, cost, damping = tried, new_values, new_cost, max(1e-6, damping / 5)
                break
            damping *= 4
        if before - cost < 1e-5 * before:
            break
    return at


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for column in range(size):
        pivot = max(range(column, size), key=lambda index: abs(rows[index][column]))
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for index in range(column + 1, size):
            factor = rows[index][column] / rows[column][column]
            rows[index] = [a - factor * b for a, b in zip(rows[index], rows[column], strict=True)]
    found = [0.0] * size
    for index in reversed(range(size)):
        known = sum(rows[index][other] * found[other] for other in range(index + 1, size))
        found[index] = (rows[index][size] - known) / rows[index][index]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", metavar="DAY", help="write the fit to the package's data, with this day (2026-11-29)"
    )
    day = parser.parse_args().write
    runs = published_runs()
    parameters = fit(runs)
    own = errors(runs, parameters)
    print(f"{len(runs)} rows, median error of the fit itself {median_size(own):.1%}")
    for name in FITTED:
        print(f"{name:<18} {getattr(parameters, name):.4g} (before any row: {getattr(PRIOR, name):.4g})")
    if day:
        by_source = [error for values in errors_by_source(runs).values() for error in values]
        found = {
            "fitted_on": day, "rows": len(runs), "source": "data/published_runs.csv, by tools/fit_step_time.py",
            "errors": {"by_rows": round(median_size(errors_by_rows(runs)), 4), "by_source": round(median_size(by_source), 4)},
            "parameters": {name: float(f"{value:.5g}") for name, value in asdict(parameters).items()},
        }  # fmt: skip
        OUT.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
