"""Which parameters a trial has. The same trial of the same sweep always gets the same ones, so a restarted server neither loses
nor repeats one. Pure."""

from __future__ import annotations

import math
import random

from headway.jobs.sweeps.sweep_file import Parameter, Sweep, Value

Parameters = dict[str, Value]


def trial_parameters(sweep: Sweep, number: int) -> Parameters:
    """Returns the parameters of a trial of a grid or random search. Trials are numbered from 1."""
    return _grid(sweep, number) if sweep.method == "grid" else _random(sweep, number)


def _grid(sweep: Sweep, number: int) -> Parameters:
    """Returns one combination; the last parameter changes first, as in nested loops."""
    found: Parameters = {}
    left = number - 1
    for name, parameter in reversed(sweep.parameters.items()):
        values = parameter.listed() or []
        left, at = divmod(left, len(values))
        found[name] = values[at]
    return {name: found[name] for name in sweep.parameters}


def _random(sweep: Sweep, number: int) -> Parameters:
    """Returns random values. The seed of each value has its parameter's name, so that a parameter added to the file does not
    change the values of the others."""
    return {
        name: _drawn(parameter, random.Random(f"{sweep.seed}/{number}/{name}"))
        for name, parameter in sweep.parameters.items()
    }


def _drawn(parameter: Parameter, source: random.Random) -> Value:
    listed = parameter.listed()
    if listed is not None:
        return source.choice(listed)
    low, high = parameter.min, parameter.max
    if low is None or high is None:
        raise ValueError("a parameter without values has min and max")
    whole = isinstance(low, int) and isinstance(high, int)
    if parameter.step is not None:
        return low + parameter.step * source.randint(0, math.floor((high - low) / parameter.step))
    if parameter.log:
        # Whole numbers get half a number more on each side, so that the ends are as likely as their neighbours.
        margin = 0.5 if whole else 0.0
        value = math.exp(source.uniform(math.log(low - margin), math.log(high + margin)))
        return min(max(round(value), int(low)), int(high)) if whole else float(f"{value:.6g}")
    return source.randint(int(low), int(high)) if whole else float(f"{source.uniform(low, high):.6g}")
