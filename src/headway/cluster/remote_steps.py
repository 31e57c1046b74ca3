"""Sends node/ops to a machine and reads its answers, in one remote call for any number of steps."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from headway.domain.machines.machine import Machine
from headway.domain.machines.managed_file import File
from headway.domain.machines.observed_state import ObservedFile, ObservedMachine, ObservedUnit
from headway.domain.storage.quotas import DesiredQuota, ObservedQuota, UserQuota
from headway.errors import HeadwayError, Unreachable
from headway.transport.remote_program import program_source
from headway.transport.ssh import Connections

Step = dict[str, Any]
# Standard input carries the program first and then the steps, so that nothing has to be installed on the machine
# before.
_LOADER = (
    "import io,sys;b=sys.stdin.buffer;p=b.read(int(b.readline()));"
    "sys.stdin=io.TextIOWrapper(io.BytesIO(b.read()));exec(compile(p,'headway-ops','exec'))"
)


class RemoteStepFailed(HeadwayError):
    """A step on a machine failed. The message names the step's error as the machine reported it."""

    kind = "step_failed"
    http_status = 502


def _stdin(request: object) -> bytes:
    text = program_source("ops").encode()
    return str(len(text)).encode() + b"\n" + text + json.dumps(request).encode()


def file_step(path: str, file: File, content: bytes | None = None) -> Step:
    """Returns the step that writes a file. `content`: the bytes of a secret; None: the file's own content."""
    data = file.content if content is None else content
    return {
        "op": "file",
        "path": path,
        "b64": base64.b64encode(data).decode(),
        "mode": file.mode,
        "owner": file.owner,
        "group": file.group,
        **({"block": True} if file.block else {}),
    }


def run_step(argv: Iterable[str], *, timeout_s: float = 60, ok: tuple[int, ...] = (0,)) -> Step:
    """Returns the step that runs a command. `ok`: exit codes that count as success."""
    return {"op": "run", "argv": list(argv), "timeout_s": timeout_s, "ok": list(ok)}


async def read_facts(
    connections: Connections,
    machine: Machine,
    *,
    files: Iterable[str],
    units: Iterable[str],
    dirs: Iterable[str] = (),
    owners: Mapping[str, str] | None = None,
    users: Iterable[str] = (),
    texts: Iterable[str] = (),
    blocks: Iterable[str] = (),
    packages: Iterable[str] = (),
    quotas: Mapping[str, DesiredQuota] | None = None,
) -> tuple[ObservedMachine, dict[str, str]]:
    """Returns the machine's facts and the texts of the requested files. Raises Unreachable."""
    request = {
        "do": "observe",
        "files": list(files),
        "units": list(units),
        "dirs": list(dirs),
        "owners": dict(owners or {}),  # for folders in places where every user may create files
        "users": list(users),
        "texts": list(texts),
        "blocks": list(blocks),
        "packages": list(packages),
        "quotas": {
            path: {"limit": quota.limit, "first_project": quota.first_project, "uids": dict(quota.uids)}
            for path, quota in (quotas or {}).items()
        },
    }
    ran = await connections.remote(machine, ["python3", "-c", _LOADER], timeout_s=60, input=_stdin(request))
    try:
        facts = json.loads(ran.stdout)
    except ValueError:
        raise Unreachable(f"{machine.name}: gave an unreadable answer: {ran.stdout[-200:]!r}") from None
    seen = ObservedMachine(
        files={
            path: ObservedFile(f["sha"], f["mode"], f["owner"], f["group"], f["ctime"])
            for path, f in facts["files"].items()
        },
        units={
            name: ObservedUnit(u["active"], u["enabled"], u["started"], u["pid"], u["loaded"])
            for name, u in facts["units"].items()
        },
        managed=tuple(facts["managed"]),
        dirs=frozenset(facts["dirs"]),
        missing=tuple(facts["missing"]),
        parts=facts["parts"],
        hostname=facts["hostname"],
        sessions=tuple(facts["sessions"]),
        quotas={path: _quota(found) for path, found in facts["quotas"].items()},
    )
    return seen, facts["texts"]


def _quota(found: Mapping[str, Any]) -> ObservedQuota:
    users = {user: UserQuota(**row) for user, row in found["users"].items()}
    return ObservedQuota(found["type"], found["device"], found["enforced"], users)


async def run_steps(
    connections: Connections, machine: Machine, steps: list[Step], *, timeout_s: float = 300
) -> tuple[str, ...]:
    """Carries out the steps in order. Returns the warnings of failed steps that are allowed to fail. Raises StepFailed
    at the first other failure; the steps before it stay done."""
    if not steps:
        return ()
    request = {"do": "apply", "steps": steps}
    ran = await connections.remote(
        machine, ["python3", "-c", _LOADER], timeout_s=timeout_s, input=_stdin(request), check=False
    )
    answers = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    for answer in answers:
        if not answer["ok"]:
            raise RemoteStepFailed(f"{machine.name}: {answer['error']}")
    if len(answers) < len(steps):
        raise RemoteStepFailed(
            f"{machine.name}: stopped after {len(answers)} of {len(steps)} steps: {ran.stderr.strip()[-400:]}"
        )
    return tuple(str(answer["warning"]) for answer in answers if "warning" in answer)
