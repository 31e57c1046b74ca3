"""The server loads code that few servers need when it is used, because each megabyte stays in memory."""

from __future__ import annotations

import subprocess
import sys


def test_clouds_and_sizing_are_loaded_when_they_are_used() -> None:
    code = "import sys, headway.server.main, headway.web.app; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    few_need = ("headway.providers.cloud.", "headway.sizing.")
    assert [name for name in ran.stdout.split() if name.startswith(few_need)] == []
