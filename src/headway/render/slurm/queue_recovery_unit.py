"""The unit that resubmits jobs which a killed slurmctld had not saved (node/agent/jobs/queue_recovery.py), by the notes that
sbatch writes (`cli_filter`)."""

from __future__ import annotations

from headway.domain.machines.managed_file import File
from headway.render.escaping import MARK
from headway.render.machine_paths import AGENT_COMMAND
from headway.render.system.daemon_units import UNITS

RESUBMIT_UNIT = "headway-resubmit.service"

_UNIT = f"""\
# {MARK}
[Unit]
Description=Headway: resubmits jobs that the controller lost
After=slurmctld.service
StartLimitIntervalSec=3600
StartLimitBurst=20
[Service]
Type=oneshot
ExecStart={AGENT_COMMAND} resubmit
# After the same crash the accounting database may need longer to start.
Restart=on-failure
RestartSec=10
"""

# For slurmctld's unit: `save-scripts` runs before slurmctld deletes the scripts of unknown jobs, the resubmit unit after it
# answers.
AROUND = f"""\
ExecStartPre=+-{AGENT_COMMAND} save-scripts
ExecStartPost=+-/usr/bin/systemctl start --no-block {RESUBMIT_UNIT}
"""


def files() -> dict[str, File]:
    """Returns the files of the head that resubmits lost jobs. Only one head may, or they would run twice."""
    return {f"{UNITS}/{RESUBMIT_UNIT}": File(_UNIT)}
