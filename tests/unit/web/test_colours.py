"""The colours of the style sheet: those of states belong to states alone, and a job's colour is never taken for one."""

from __future__ import annotations

import itertools
import re

import pytest

from headway.web.rendering import STATIC
from headway.web.views.overview import HUES

STATES = ("ok", "warn", "bad-solid", "line-strong", "soft")  # in order, drained, down, free, powered off
PAIR = re.compile(r"--([a-z0-9-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)")

Oklab = tuple[float, float, float]


def _linear(hexadecimal: str) -> list[float]:
    channels = [int(hexadecimal[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def _oklab(hexadecimal: str) -> Oklab:
    """Returns a colour in Oklab, whose distances are those that people see. Source: bottosson.github.io/posts/oklab."""
    r, g, b = _linear(hexadecimal)
    long = (0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b) ** (1 / 3)
    middle = (0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b) ** (1 / 3)
    short = (0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b) ** (1 / 3)
    return (
        0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short,
        1.9779984951 * long - 2.4285922050 * middle + 0.4505937099 * short,
        0.0259040371 * long + 0.7827717662 * middle - 0.8086757660 * short,
    )


def _distance(one: str, other: str) -> float:
    return sum((a - b) ** 2 for a, b in zip(_oklab(one), _oklab(other), strict=True)) ** 0.5


def _contrast(one: str, other: str) -> float:
    """Returns the contrast ratio of WCAG 2.2."""
    light, dark = sorted(
        (sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), _linear(x), strict=True)) for x in (one, other)),
        reverse=True,
    )
    return (light + 0.05) / (dark + 0.05)


def _colours(scheme: int) -> dict[str, str]:
    """Returns the style sheet's colours by name; 0 = light, 1 = dark."""
    return {name: pair[scheme] for name, *pair in PAIR.findall((STATIC / "app.css").read_text())}


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_no_job_has_the_colour_of_a_state(scheme: int) -> None:
    colours = _colours(scheme)
    near = [
        (f"hue-{i}", state, round(_distance(colours[f"hue-{i}"], colours[state]), 3))
        for i, state in itertools.product(range(HUES), STATES)
        if _distance(colours[f"hue-{i}"], colours[state]) < 0.1
    ]
    assert near == []


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_jobs_have_colours_of_their_own_on_which_a_letter_can_be_read(scheme: int) -> None:
    colours = _colours(scheme)
    hues = [colours[f"hue-{i}"] for i in range(HUES)]
    pairs = itertools.combinations(range(HUES), 2)
    near = [(a, b, round(_distance(hues[a], hues[b]), 3)) for a, b in pairs if _distance(hues[a], hues[b]) < 0.08]
    assert near == []
    assert min(_contrast(hue, colours["on-hue"]) for hue in hues) >= 4.5
