"""Runs podman for the local provider and parses its output. Finds the runtime and limits that work on this host."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import resource
import shutil
import stat
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from headway.domain.machines.machine import HostProblem
from headway.errors import CommandFailed, Refused
from headway.transport.process import CommandResult, run_process

# Hint for a podman that fails or hangs by itself; local machines can't work without it.
HINT = "podman on this host does not work as it should: `headway doctor`, or try `podman ps` yourself; then try again"
QUERY_TIMEOUT_S = 45.0  # for read-only commands; shorter than a client waits for an answer
_LOCK_RETRY_S = 0.2
_NPROC = (1 << 20, 32768, 4096)  # tried in this order, because podman may run under a lower limit than this process


def host_lock_folder() -> Path:
    """Returns the folder of locks for the whole host, which networks need because all state folders share the host's
    addresses."""
    if os.geteuid() == 0:
        return Path("/run/headway")  # of root alone; every user may make files in /run/lock
    return Path(os.environ.get("XDG_RUNTIME_DIR") or f"/tmp/headway-{os.getuid()}")


@contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on `path`, which is created if missing. It blocks while it waits, so call it off the
    event loop."""
    with _lock_file(path) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@asynccontextmanager
async def async_file_lock(path: Path) -> AsyncIterator[None]:
    """Holds the same lock. While it waits it occupies no thread, and when it is cancelled it leaves no lock behind."""
    with _lock_file(path) as handle:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_RETRY_S)
        yield


@contextmanager
def _lock_file(path: Path) -> Iterator[int]:
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError as error:
        raise Refused(f"{path} can't be opened as a lock: {error.strerror}", hint="remove it") from None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise Refused(f"{path} is not a file of this user: it is not used as a lock", hint="remove it")
        yield handle
    finally:
        os.close(handle)


class Podman:
    """podman with the runtime and limits that work on this host. They are found by a trial and saved in the state
    folder."""

    def __init__(self, state_dir: Path) -> None:
        self._cache = state_dir / "podman.json"
        self._found: dict[str, list[str]] | None = None

    async def __call__(
        self,
        *argv: str,
        timeout_s: float = 60,
        check: bool = True,
        input: bytes | None = None,  # noqa: A002
    ) -> CommandResult:
        try:
            return await run_process([*self.base(), *argv], timeout_s=timeout_s, check=check, input=input)
        except CommandFailed as error:
            error.hint = error.hint or HINT
            raise

    def base(self) -> list[str]:
        """Returns podman with its global options. Before the trial it has no options, which fits most hosts."""
        found = self._load()
        return ["podman", *(found["runtime"] if found else [])]

    async def json(self, *argv: str, timeout_s: float = QUERY_TIMEOUT_S) -> Any:
        """Returns the parsed output of a command that prints JSON."""
        return json.loads((await self(*argv, timeout_s=timeout_s)).stdout or "null")

    async def limits(self, image: str) -> list[str]:
        """Returns the options of `podman run` that this host needs. The first call runs /bin/true from `image` to find
        them."""
        found = self._load() or await self._probe(image)
        return found["limits"]

    def _load(self) -> dict[str, list[str]] | None:
        if self._found is None:
            try:
                found = json.loads(self._cache.read_text())
                self._found = {"runtime": list(found["runtime"]), "limits": list(found["limits"])}
            except (OSError, ValueError, KeyError, TypeError):
                return None
        return self._found

    async def _probe(self, image: str) -> dict[str, list[str]]:
        """Finds the runtime and limits by running /bin/true: first podman's own choice, then runc (crun refuses hybrid
        cgroups), each without and with limits that this process may set. Raises Refused if none works."""
        last: CommandFailed | None = None
        for limits in ([], *map(_own_limits, _NPROC)):
            for runtime in ([], ["--runtime", "runc"]):
                argv = [
                    "podman",
                    *runtime,
                    "run",
                    "--rm",
                    "--label",
                    "headway=1",
                    "--network",
                    "none",
                    "--privileged",
                ]
                try:
                    await run_process([*argv, *limits, image, "/bin/true"], timeout_s=60)
                except CommandFailed as error:
                    last = error
                    continue
                self._found = {"runtime": runtime, "limits": limits}
                self._cache.parent.mkdir(parents=True, exist_ok=True)
                draft = self._cache.with_suffix(f".{os.getpid()}")
                draft.write_text(json.dumps(self._found))
                draft.replace(self._cache)
                return self._found
        raise Refused(
            f"podman can't run a container on this host: {last.stderr.strip()[-400:] if last else ''}",
            hint="run `headway doctor`; `make setup` installs podman and runc",
        )


def _own_limits(nproc: int) -> list[str]:
    """Returns limits no higher than those of this process, which need no CAP_SYS_RESOURCE."""
    chosen: list[str] = []
    for name, kind, most in (("nofile", resource.RLIMIT_NOFILE, 1 << 20), ("nproc", resource.RLIMIT_NPROC, nproc)):
        hard = resource.getrlimit(kind)[1]
        value = most if hard == resource.RLIM_INFINITY else min(hard, most)
        chosen += ["--ulimit", f"{name}={value}:{value}"]
    return chosen


async def podman_problem(timeout_s: float = 20) -> tuple[HostProblem, ...]:
    """Returns a problem if podman is installed but does not answer."""
    if shutil.which("podman") is None:
        return ()  # preflight reports missing programs
    try:
        await run_process(["podman", "ps", "--all", "--quiet"], timeout_s=timeout_s)
    except CommandFailed as error:
        return (HostProblem(error.message, "repair podman on this host first: Headway needs it"),)
    return ()


def labels(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Returns the `--label` options."""
    return [part for name, value in pairs for part in ("--label", f"{name}={value}")]
