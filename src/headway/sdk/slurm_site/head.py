"""Reads a site from its head over SSH: runs a program of node/programs there, with this person's own ssh, keys and known
hosts."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass

from headway.errors import CommandFailed, Refused, Unreachable
from headway.paths import node_dir
from headway.slurm_import.importer import SiteFiles

SCHEME = "ssh://"
TIMEOUT_S = 300.0
CONFIGURATION, STATE, JOBS = "read_slurm_site.sh", "read_slurm_state.sh", "read_slurm_jobs.sh"
WITH_SCRIPTS = b"scripts=yes\n"  # a setting of CONFIGURATION
_ADDRESS = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?(?P<host>[A-Za-z0-9_][A-Za-z0-9_.-]*)(?::(?P<port>[0-9]{1,5}))?/?"
)
_HEADER = re.compile(rb"FILE ([0-9]{1,9}) (.+)|FAIL (.+)")


@dataclass(frozen=True)
class HeadAddress:
    """Where a head answers SSH. `user`, `port`: "" leaves them to the person's ssh configuration."""

    host: str
    user: str = ""
    port: str = ""

    @property
    def argv(self) -> list[str]:
        """The command that runs a script of standard input there."""
        port = ["-p", self.port] if self.port else []
        # Without a terminal no question can be answered: a missing key is an error.
        options = ["-o", "BatchMode=yes", "-o", "ConnectTimeout=20", "-o", "ServerAliveInterval=15"]
        return ["ssh", *options, *port, "--", f"{self.user}@{self.host}" if self.user else self.host, "sh", "-s"]


def parse_address(text: str) -> HeadAddress:
    """Returns the address in ssh://[USER@]HOST[:PORT]. Raises Refused for another text."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise Refused(f"{text} is no address of a head", hint="write ssh://HEAD or ssh://USER@HEAD:PORT")
    return HeadAddress(match["host"], match["user"] or "", match["port"] or "")


def program_text(name: str) -> bytes:
    """Returns the text of a program that prints files of Slurm."""
    return (node_dir() / "programs" / name).read_bytes()


def read_jobs_of_head(text: str, days: int) -> str:
    """Returns the jobs of the last days as `sacct` prints them. Raises Refused, and Unreachable if ssh or sacct fails."""
    found = read_head(text, JOBS, f"days={days}\n".encode())
    for path, why in found.unread.items():
        raise Unreachable(f"{path} of {text} was not read: {why}", hint="try it by hand: ssh HEAD sacct -a -X")
    return "".join(found.texts.values())


def read_head(text: str, program: str = CONFIGURATION, settings: bytes = b"") -> SiteFiles:
    """Returns the texts of the site at ssh://[USER@]HEAD[:PORT]. `program`: CONFIGURATION or STATE; `settings`: lines
    before it. Raises Refused, and Unreachable if ssh fails."""
    # Imported late: reading a folder starts no process.
    from headway.transport.process import run_process

    address = parse_address(text)
    ended = "the connection ended before the head had sent everything"
    try:
        done = asyncio.run(
            run_process(address.argv, timeout_s=TIMEOUT_S, input=settings + program_text(program), check=False)
        )
        out, said = done.out, done.stderr
    except CommandFailed as error:
        if error.code == 127:
            raise Refused(
                "ssh is not installed here", hint="install it, or copy /etc/slurm here: --from FOLDER"
            ) from None
        ended = f"the head did not send it within {TIMEOUT_S:.0f} s"
        out, said = error.out, ended
    texts, unread, complete = parse_parts(out)
    if not texts and (program == CONFIGURATION or not unread):
        why = (said.strip().splitlines() or ["it printed nothing"])[-1][:300]
        raise Unreachable(f"{address.host} sent no files of Slurm: {why}", hint=_hint(address))
    if not complete:
        unread["(the rest)"] = ended
    return SiteFiles(texts, unread, text)


def _hint(address: HeadAddress) -> str:
    name = f"{address.user}@{address.host}" if address.user else address.host
    return f"try it by hand: ssh {name} true; or copy the site's files here: --from FOLDER"


def parse_parts(out: bytes) -> tuple[dict[str, str], dict[str, str], bool]:
    """Returns what read_slurm_site.sh printed: texts by path, files that could not be read with the reason, and whether it
    came to its end."""
    texts: dict[str, str] = {}
    unread: dict[str, str] = {}
    position = 0
    while position < len(out):
        end = out.find(b"\n", position)
        line = out[position : end if end >= 0 else len(out)]
        position = end + 1 if end >= 0 else len(out)
        if line == b"END":
            return texts, unread, True
        match = _HEADER.fullmatch(line)
        if match is None:  # a greeting of the login shell
            continue
        if match[3] is not None:
            stop = out.find(b"\n", position)
            stop = stop if stop >= 0 else len(out)
            unread[_text(match[3])] = _text(out[position:stop])
            position = stop + 1
            continue
        size, path = int(match[1]), _text(match[2])
        texts[path] = _text(out[position : position + size])
        if len(out) - position < size:
            unread[path] = f"only {len(out) - position:,} of its {size:,} bytes were read"
        position += size + 1
    return texts, unread, False


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", errors="replace")
