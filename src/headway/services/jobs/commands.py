"""Commands on a cluster's login node."""

from __future__ import annotations

from headway.schemas.submissions import ExecIn, ExecOut
from headway.services.app_state import AppState
from headway.services.authorization import cluster_to_work_on, command_slot, write_audit_line
from headway.services.identity import Principal


async def run_login_command(state: AppState, who: Principal, name: str, request: ExecIn) -> ExecOut:
    """Runs one command to its end as the named user (default: root for admins, otherwise the person's own user), and
    returns its exit code and output."""
    user = who.command_user(request.user)
    cluster = await cluster_to_work_on(state, name, who)
    await write_audit_line(state, who, "exec", name, user=user, program=request.argv[0][:100])
    with command_slot(state, who):
        return await state.backend.commands.run_command(cluster, request, user)
