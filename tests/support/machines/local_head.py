"""Makes this machine the head: node/user_helper's programs are real, sbatch is a stand-in, and `alice` is the user
nobody."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.transport.process import CommandResult
from headway.transport.remote_program import program_source
from tests.support.clusters.builders import machine, open_to_all
from tests.support.waiting import eventually

HEAD = machine("lab-head")
PERSON = "alice"  # the user nobody on this machine
SBATCH = """\
#!/bin/sh
cd {folder} || exit 9
for word; do last=$word; done
echo "$(id -u) $(basename "$last")" >>submitted
cat "$last" >script
case "$MOOD" in
slow) echo $$ >began; exec sleep 60;;
sour) echo "sbatch: error: no such thing" >&2; exit 3;;
loud) yes & ;;
esac
echo "Submitted batch job $(wc -l <submitted)"
"""


@dataclass
class Machine:
    """A head that is this machine: programs are real except for sbatch, and `alice` is the user nobody."""

    folder: Path
    held: list[asyncio.subprocess.Process] = field(default_factory=list)
    fresh: int = 0

    def argv(self, argv: Sequence[str]) -> list[str]:
        """Returns the command line that runs node/user_helper here, with `alice` mapped to the user nobody."""
        nobody = pwd.getpwnam("nobody")
        entry = (PERSON, "x", nobody.pw_uid, nobody.pw_gid, "", str(self.folder), "/bin/bash")
        code = f"""
import pwd
exec({program_source("user_helper")!r}, {{"__name__": "p"}})
from user_helper import __main__, identity, login_environment as login
people = {{{PERSON!r}: pwd.struct_passwd({entry!r})}}
def person(name):
    return people[name] if name in people else identity.refuse(f"there is no user {{name}} on lab-head")
def quietly(*_):
    open({str(self.folder / "limits")!r}, "a").write("limited\\n")
identity.user_entry, identity.run_quietly, identity.OLD = person, quietly, "/"
login.login_environment = lambda entry: {{"PATH": {str(self.folder / "bin")!r} + ":/usr/bin:/bin"}}
__main__.main()
"""
        return [sys.executable, "-I", "-S", "-c", code, *argv[5:]]

    async def hold(self, machine: Any, argv: Sequence[str]) -> Process:
        """Starts a helper that stays running, as the connection's `hold` does."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self.argv(argv), stdin=pipe, stdout=pipe, start_new_session=True
        )
        self.held.append(process)
        return Process(process)

    async def remote(self, machine: Any, argv: Sequence[str], **options: Any) -> CommandResult:
        pipe = asyncio.subprocess.PIPE
        self.fresh += 1
        process = await asyncio.create_subprocess_exec(*self.argv(argv), stdin=pipe, stdout=pipe, stderr=pipe)
        out, err = await process.communicate(options.get("input"))
        return CommandResult(tuple(argv), process.returncode or 0, out.decode(), err.decode(), 0.0, out)

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is streamed")

    def converse(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nobody talks")

    def lines(self, name: str) -> list[str]:
        """Returns the lines of a file in the head's folder; [] if there is none."""
        file = self.folder / name
        return file.read_text().splitlines() if file.exists() else []

    async def until(self, name: str) -> None:
        """Waits until the stand-in for sbatch has written the file."""
        await eventually(lambda: self.lines(name))


@dataclass
class Process:
    """A running helper, with the interface of a remote process."""

    process: asyncio.subprocess.Process

    @property
    def over(self) -> bool:
        assert self.process.stdout is not None
        return self.process.stdout.at_eof() or self.process.returncode is not None

    async def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self.process.stdin.write(data)
            await self.process.stdin.drain()

    async def read(self) -> bytes:
        assert self.process.stdout is not None
        return await self.process.stdout.read(65536)

    async def ended(self) -> bool:
        await self.process.wait()
        return True

    async def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()


def head_here(folder: Path, sbatch: str = SBATCH) -> Machine:
    """Returns this machine as a head. `sbatch` is the text of the stand-in; `{folder}` in it is alice's home."""
    open_to_all(folder)
    home = folder / "home"
    (home / "bin").mkdir(parents=True)
    home.chmod(0o777)
    file = home / "bin" / "sbatch"
    file.write_text(sbatch.format(folder=home))
    file.chmod(0o755)
    return Machine(home)
