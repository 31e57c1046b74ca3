"""Programs that stand in for others on the machine. Each accepts only the calls that a test registers, and refuses others."""

from __future__ import annotations

import json
import os
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_SOURCE = """#!{python}
import json, sys, time
calls = json.loads(open({calls!r}).read())
with open({log!r}, "a") as log:
    log.write(json.dumps([{name!r}, *sys.argv[1:]]) + "\\n")
for call in calls:
    if call["words"] == sys.argv[1:]:
        time.sleep(call["seconds"])
        sys.stdout.write(call["out"])
        sys.stderr.write(call["err"])
        sys.exit(call["code"])
sys.stderr.write({name!r} + ": refused: " + " ".join(sys.argv[1:]) + "\\n")
sys.exit(97)
"""


@dataclass
class StandInPrograms:
    """A folder of stand-in programs, first in PATH."""

    folder: Path
    _calls: dict[str, list[dict[str, object]]] = field(default_factory=dict)

    def accept(self, name: str, *words: str, out: str = "", err: str = "", code: int = 0, seconds: float = 0.0) -> None:
        """Registers a call of the program `name`, which is made if it does not exist."""
        rows = self._calls.setdefault(name, [])
        rows.append({"words": list(words), "out": out, "err": err, "code": code, "seconds": seconds})
        file = self.folder / f"{name}.calls"
        file.write_text(json.dumps(rows))
        program = self.folder / name
        program.write_text(
            _SOURCE.format(python=sys.executable, calls=str(file), log=str(self.folder / "log"), name=name)
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    @property
    def called(self) -> list[list[str]]:
        """The calls so far, refused ones too: the program's name and its words."""
        log = self.folder / "log"
        return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def stand_in_programs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> StandInPrograms:
    """Returns programs in an empty folder, which is the whole PATH: nothing of this machine is found."""
    folder.mkdir()
    monkeypatch.setitem(os.environ, "PATH", str(folder))
    return StandInPrograms(folder)
