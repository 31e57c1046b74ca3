"""The parameters of the step time, as they were fitted to published runs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from json import loads
from typing import Any


@dataclass(frozen=True, slots=True)
class StepParameters:
    """Shares are of the data sheet's figure, unless said otherwise."""

    matmul: float = 0.92  # of the largest share that a matrix product was measured to reach
    hopper: float = 0.85  # the same, further factor of GPUs after Ampere: clocks fall at their power limit
    half_side: float = 150.0  # side of a matrix at which the A100 reaches half of that share
    attention: float = 0.33  # the first FlashAttention, of the bf16 peak: 25 to 40 % in 2307.08691
    attention_hopper: float = 0.6  # further factor of GPUs after Ampere
    element_bytes: float = 70.0  # bytes of element-wise work per token, layer and element of the width, both passes
    loss_bytes: float = 24.0  # bytes of the loss per token and word of the vocabulary
    launch_s: float = 2e-4  # of one layer and microbatch, forward and backward
    link: float = 0.7  # of the link between GPUs of a machine
    network: float = 0.6  # of the network between machines
    overlap: float = 0.7  # of a collective that can overlap with the computation
    straggler: float = 0.01  # of the step for each doubling of machines
    low_precision: float = 0.8  # fp8 and fp4: further factor of their peak; not fitted


FITTED = tuple(one.name for one in fields(StepParameters) if one.name != "low_precision")


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted parameters with their origin. `errors` are cross-validated medians (shares) of the fit's day."""

    parameters: StepParameters
    fitted_on: str
    rows: int
    source: str
    errors: dict[str, float]


@cache
def shipped_calibration() -> Calibration:
    """Returns the calibration of data/step_time.json."""
    text = files("headway.sizing").joinpath("data/step_time.json").read_text(encoding="utf-8")
    found: dict[str, Any] = loads(text)
    return Calibration(
        StepParameters(**found["parameters"]), found["fitted_on"], found["rows"], found["source"], found["errors"]
    )
