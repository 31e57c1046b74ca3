"""Reads a request from standard input, carries it out, and prints the answer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

from ops import facts, steps
from ops.files import StepFailed


def apply(work: list[dict[str, Any]]) -> int:
    """Carries out the steps in order and prints an answer for each. Returns 1 at the first step that fails, unless it
    has "may_fail"."""
    for index, step in enumerate(work):
        began = time.monotonic()
        answer: dict[str, Any] = {"i": index, "ok": True}
        try:
            getattr(steps, "op_" + step["op"])(step)
        except StepFailed as error:
            answer = {"i": index, "ok": False, "error": str(error)}
        except (OSError, subprocess.SubprocessError) as error:
            answer = {"i": index, "ok": False, "error": f"{step.get('path', step['op'])}: {error}"}
        if not answer["ok"] and step.get("may_fail"):
            answer = {"i": index, "ok": True, "warning": answer["error"]}
        answer["s"] = round(time.monotonic() - began, 3)
        print(json.dumps(answer), flush=True)
        if not answer["ok"]:
            return 1
    return 0


def main() -> int:
    request = json.loads(sys.stdin.buffer.read())
    if request["do"] == "observe":
        print(json.dumps(facts.observe(request)))
        return 0
    return apply(request["steps"])


if __name__ == "__main__":
    sys.exit(main())
