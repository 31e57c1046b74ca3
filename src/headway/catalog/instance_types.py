"""Instance types of clouds for the package's plans. A cluster file may name others in `cloud.types`."""

from __future__ import annotations

from collections.abc import Mapping

HEAD = ""  # the key of the types for heads
_TYPES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "aws": {
        HEAD: ("m7i.xlarge", "m6i.xlarge", "m5.xlarge"),
        "h100-8": ("p5.48xlarge",),
        "h200-8": ("p5en.48xlarge", "p5e.48xlarge"),
        "a100-8": ("p4de.24xlarge",),
        "l40s-4": ("g6e.24xlarge",),
        "b200-8": ("p6-b200.48xlarge",),
        "cpu-64": ("m7i.16xlarge", "m6i.16xlarge", "m5.16xlarge"),
    },
}


def types_for(provider: str, plan: str) -> tuple[str, ...]:
    """Returns the types for a plan, or for heads (`HEAD`), in the order in which they are tried; () if none is known."""
    return _TYPES.get(provider, {}).get(plan, ())
