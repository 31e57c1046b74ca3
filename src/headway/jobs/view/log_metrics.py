"""Steps and metrics in lines of a training's log, as common libraries write them: HF Trainer, Lightning, nanoGPT, Megatron,
torchtitan, Composer, timm, JSON lines, and plain `step 120 loss 1.873`. Pure."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LONGEST_LINE = 4096
MAX_NAMES = 16  # metrics of one line
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_NUMBER = r"[-+]?(?:\d{1,30}(?:,\d{3}){0,9}(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?|nan|inf"
# A step with a word: "step=7", "iter 100:", "iteration  100/ 500", "[batch=50/1000]". A total lets epochs be counted in steps.
_STEP = re.compile(
    r"\b(?:global[ _]?step|train[ _]?step|step|iteration|iter|batch)\b[\"' \t:=#\[]{0,8}(\d{1,12})\b"
    r"(?:[ \t]{0,8}/[ \t]{0,8}(\d{1,12}))?",
    re.IGNORECASE,
)
# A position without a word: "450/1000 [00:12<" of a progress bar, "[ 50/1251 (  4%)]" of timm.
_BAR = re.compile(r"(\d{1,12})/(\d{1,12}) ?(?:\[\d|\([ \d]{1,4}%\)\])")
_EPOCH = re.compile(r"\b(?:epoch|train(?: epoch)?)[\"' \t:=#\[]{1,8}(\d{1,9})\b(?!\.\d)", re.IGNORECASE)
# A number with a name: "loss 1.8", "train_loss=0.5", "lm loss: 6.1E+00", "Train loss/train/total: 2.3", "'grad_norm': '1.2'".
_PAIR = re.compile(
    rf"(?<![\w/.\-])((?:(?:train|val|valid|validation|eval|test|lm|grad|learning|mtp)[ _])?[A-Za-z][\w/.\-]{{0,60}})[\"']?"
    rf"[ \t]{{0,4}}(?:[:=][ \t]{{0,8}}|[ \t])[\"']?({_NUMBER})(?![\w.]|/)",
    re.IGNORECASE,
)
# Names that may stand before a number without ":" or "=". Others would be words of a sentence.
_BARE = re.compile(r"(?:\w* )?(?:\w*loss|lr|acc|accuracy|mfu|tps|ppl|perplexity|grad_norm)", re.IGNORECASE)
_NO_METRICS = re.compile(
    r"(?:global_?step|(?:train_?)?step|iter(?:ation)?|batch|(?:train ?)?epoch|train|size|scale|rate|eta|seed|rank|local_rank|"
    r"v_num|it|time|at|t|samples|job|pid|port)s?",
    re.IGNORECASE,
)
# The step among the keys of a JSON object.
_STEP_KEY = re.compile(r"(?:(?:train|trainer)[/_])?(?:global_?)?(?:step|iteration|iter)s?", re.IGNORECASE)
_WORDS = re.compile(r"[ _/.\-]")
_HELD_OUT = ("val", "valid", "validation", "eval", "test")


@dataclass(frozen=True, slots=True)
class LoggedMetrics:
    """What a line says. `loss`: that of the training, None if the line has only other metrics."""

    step: int
    loss: float | None
    values: Mapping[str, float]


@dataclass
class LogMetricsParser:
    """Reads lines one after the other, and remembers the position that progress bars and headings give to later lines."""

    _place: int = -1  # the newest position
    _total: int = 0  # steps of the longest progress bar
    _line: int = 0  # losses without any position

    def parse(self, line: bytes) -> LoggedMetrics | None:
        """Returns the step and the metrics of a line; None for a line without a loss. A line without a step has that of the
        newest progress bar or heading; without those, losses are counted."""
        low = line.lower()
        bar, has_loss = b"/" in line and (b"%" in line or b"batch" in low), b"loss" in low
        if not bar and not has_loss:
            return None
        text = _ESCAPES.sub("", line[:LONGEST_LINE].decode(errors="replace")).strip()
        place = _place(text)
        if not has_loss:
            if place is not None and place[1] >= self._total:  # a shorter bar is that of an evaluation
                self._place, self._total = place
            return None
        numbers = dict(_first(_numbers(text)))
        values = {name: value for name, value in numbers.items() if not _NO_METRICS.fullmatch(name)}
        step = _step_of(numbers) if text.startswith("{") else place and place[0]
        loss = _training_loss(values)
        if not any(map(_is_loss, values)):
            return None
        if step is not None:
            self._place = step
        elif self._place >= 0:
            step = self._place
        else:  # without any position losses of the training are counted
            self._line += loss is not None
            step = self._line
        return LoggedMetrics(step, loss, values)


def _place(text: str) -> tuple[int, int] | None:
    """Returns the step that a line states, in steps of all epochs if it states an epoch and the steps of one, and those steps
    (0: it does not state them)."""
    found = _STEP.search(text)
    bar = None if found else _BAR.search(text)
    epoch = _EPOCH.search(text)
    match = found or bar
    if match is None:
        return (int(epoch[1]), 0) if epoch else None
    step, total = int(match[1]), int(match[2] or 0)
    return (step + int(epoch[1]) * total if epoch and total else step), total


def _numbers(text: str) -> Iterator[tuple[str, float]]:
    """Yields the numbers of a line with their names: of a JSON object or a Python dict, else of "name: number" pairs."""
    if text.startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            values = json.loads(text)
            for name, value in values.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    with contextlib.suppress(OverflowError):
                        yield str(name)[:64], float(value)
            return
    for found in _PAIR.finditer(text):
        name, number = found[1], found[2]
        separated = any(mark in found[0][len(name) :] for mark in ":=")
        if separated or _BARE.fullmatch(name):
            yield name, float(number.replace(",", ""))


def _first(numbers: Iterator[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """Yields each name once, MAX_NAMES at most."""
    seen: set[str] = set()
    for name, value in numbers:
        if name not in seen and len(seen) < MAX_NAMES:
            seen.add(name)
            yield name, value


def _step_of(numbers: Mapping[str, float]) -> int | None:
    """Returns the step among the numbers of an object."""
    for name, value in numbers.items():
        if _STEP_KEY.fullmatch(name) and value >= 0 and math.isfinite(value):
            return int(value)
    return None


def _is_loss(name: str) -> bool:
    words = _WORDS.split(name.lower())
    return "loss" in words and "scale" not in words


def _training_loss(values: Mapping[str, float]) -> float | None:
    """Returns the loss of the training: one named loss before train_loss, lm loss and the like; None if there are only losses
    of held-out data, or none."""
    losses = [name for name in values if _is_loss(name)]
    own = [name for name in losses if not any(part in _HELD_OUT for part in _WORDS.split(name.lower()))]
    if not own:
        return None
    return values[min(own, key=lambda name: (name.lower() != "loss", own.index(name)))]
