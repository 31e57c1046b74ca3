"""Terminals: a shell on the login node, or in a running job, with its output streamed and keys in further requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from headway.domain.cluster import Cluster
from headway.domain.slurm.nodes_and_jobs import JobState
from headway.errors import Conflict, NotAllowed, Refused
from headway.jobs.remote.interactive_command import keys_frame, size_frame
from headway.schemas.submission.exec_commands import TerminalIn, TerminalSize
from headway.services.access.audit import write_audit_line
from headway.services.access.concurrency_limits import command_slot
from headway.services.access.ownership_rights import authorize_as_owner, cluster_to_work_on
from headway.services.access.role_rights import Principal
from headway.services.app_state import AppState, CommandInput
from headway.services.jobs.exec_commands import INPUT_QUEUE, LoginCommand, add_input, feed_of
from headway.services.jobs.find_job import read_job_now, slurm_target
from headway.slurm.job_shell import job_shell_argv

# What programs may assume of the terminal: the page's emulator is compatible with xterm.
_ENVIRONMENT = ("env", "TERM=xterm-256color", "COLORTERM=truecolor")
_LOGIN_SHELL = ("sh", "-c", 'exec "${SHELL:-/bin/bash}" -l')


async def open_terminal(
    state: AppState, who: Principal, name: str, request: TerminalIn, resources: contextlib.ExitStack
) -> LoginCommand:
    """Returns a terminal whose shell starts when its output is read: in the job, as its user, or on the login node.
    `resources` gets what must be released after it. Raises NotAllowed, Conflict for a job that does not run, Refused for a node
    that it does not have and for an id that is in use, and TooManyAtOnce."""
    cluster = await cluster_to_work_on(state, name, who)
    argv, user, job = await _shell(state, who, cluster, request)
    key = _key(who, name, request.input)
    if key in state.command_inputs:
        raise Refused("two terminals can't have the same id")
    with contextlib.ExitStack() as entered:
        entered.enter_context(command_slot(state, who))
        state.command_inputs[key] = CommandInput(asyncio.Queue(INPUT_QUEUE))
        entered.callback(state.command_inputs.pop, key)
        detail = {"job": request.job, "node": request.node} if request.job else {}
        await write_audit_line(state, who, "terminal", name, user=user, **detail)
        resources.push(entered.pop_all())

    async def check(who: Principal) -> None:
        cluster = await cluster_to_work_on(state, name, who)
        if job is not None:
            await authorize_as_owner(state, cluster, who, job, f"use a terminal in job {request.job}")
        elif who.user_to_act_as(request.user) != user:
            raise NotAllowed(f"{who.person} may no longer act as {user}")

    size = (request.rows, request.columns)
    keys = feed_of(state.command_inputs[key].queue)
    return LoginCommand(state.backend.commands.run_on_terminal(cluster, argv, user, size, keys), check)


async def send_keys(
    state: AppState,
    who: Principal,
    name: str,
    key: str,
    read_piece: Callable[[], Awaitable[bytes]],
    is_disconnected: Callable[[], Awaitable[bool]],
) -> None:
    """Types keys on a terminal, and returns when it has room for them. Raises as `exec_commands.send_input`."""

    async def read_frames() -> bytes:
        return keys_frame(await read_piece())

    await add_input(state, _key(who, name, key), read_frames, is_disconnected)


async def resize_terminal(
    state: AppState,
    who: Principal,
    name: str,
    key: str,
    size: TerminalSize,
    is_disconnected: Callable[[], Awaitable[bool]],
) -> None:
    """Gives a terminal another size. Raises as `exec_commands.send_input`."""

    async def read_frame() -> bytes:
        return size_frame(size.rows, size.columns)

    await add_input(state, _key(who, name, key), read_frame, is_disconnected)


async def _shell(
    state: AppState, who: Principal, cluster: Cluster, request: TerminalIn
) -> tuple[tuple[str, ...], str, JobState | None]:
    """Returns the command of the shell, the Linux user that runs it, and the job in which it runs (None: in none)."""
    if not request.job:
        return (*_ENVIRONMENT, *_LOGIN_SHELL), who.user_to_act_as(request.user), None
    number, _, task = request.job.partition("_")
    job = await read_job_now(state, cluster, int(number))
    target, states = slurm_target(state, cluster, job, int(number), task)
    await authorize_as_owner(state, cluster, who, job, f"open a terminal in job {target}")
    if states != ["RUNNING"]:
        what = f"is an array of {len(states)} tasks" if len(states) > 1 else f"does not run: {states[0]}"
        raise Conflict(f"job {target} {what}", hint="name one task: ARRAY_TASK" if len(states) > 1 else "")
    if request.node and request.node not in job.nodes:
        raise Refused(f"job {target} does not run on {request.node}", hint=f"its nodes are {', '.join(job.nodes[:20])}")
    return (*_ENVIRONMENT, *job_shell_argv(target, request.node)), job.user, job


def _key(who: Principal, cluster: str, key: str) -> tuple[str, str]:
    """Returns the name of a terminal's input, which no command and no terminal of another cluster has."""
    return who.person, f"terminal {cluster} {key}"
