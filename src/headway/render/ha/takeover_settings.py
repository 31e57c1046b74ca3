"""When the second head takes over: slurm.conf's settings of two controllers. Slurm's backup controller decides; the agent
(node/agent/failover) makes connections to a dead first head fail at once and cleans up afterwards."""

from __future__ import annotations

from headway.render.slurm.conf_section_types import Setting

LEADS = "/usr/lib/headway/leads"
LEADS_WHY = (
    "Writes the active controller's name to the state folder, so that a controller that hung learns it lost control."
)
# The minimum: below that, slurmctld writes its heartbeat without a pause. BEAT_OVER_S in node/agent/failover/leader.py is three
# times as much.
SLURMCTLD_TIMEOUT_S = 4


def takeover_settings() -> tuple[Setting, ...]:
    """Returns the settings of a cluster with two heads."""
    return (
        Setting(
            "SlurmctldTimeout",
            str(SLURMCTLD_TIMEOUT_S),
            "Seconds without a heartbeat until the standby takes over.",
        ),
        Setting(
            "TCPTimeout",
            "1",
            "Seconds; the standby tries the failed head's slurmdbd four times before it schedules.",
        ),
        Setting("SlurmctldPrimaryOnProg", LEADS, LEADS_WHY),
    )
