"""Conditions on outputs of earlier steps: `when` of the pipeline file, as the plan has it.

A condition is a list of alternatives, each a list of comparisons [left, operator, right] that must all hold. `left` is
[step, output], `right` the same or a number."""

import math
import operator

_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def failed_comparison(condition, values):
    """Returns "" if the condition holds, otherwise a comparison that does not hold, with the values: "evaluate.accuracy is
    0.71, not >= 0.9". `values`: (step, output) -> text."""
    failed = ""
    for alternative in condition:
        texts = [text for comparison in alternative if (text := _failed(comparison, values))]
        if not texts:
            return ""
        failed = failed or texts[0]
    return failed


def _failed(comparison, values):
    (step, output), sign, right = comparison
    left_text = values.get((step, output), "")
    right_text = values.get(tuple(right), "") if isinstance(right, list) else str(right)
    left, bound = _number(left_text), _number(right_text)
    # Every comparison with NaN is false, also !=.
    if not (math.isnan(left) or math.isnan(bound)) and _COMPARE[sign](left, bound):
        return ""
    named = f"{right[0]}.{right[1]} ({right_text})" if isinstance(right, list) else f"{right:g}"
    return f"{step}.{output} is {left_text}, not {sign} {named}"


def _number(text):
    try:
        return float(text)
    except ValueError:
        return math.nan
