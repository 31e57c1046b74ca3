"""The log of submissions that sbatch writes, and the unit that resubmits what a killed slurmctld had not saved
(node/agent/jobs/queue_recovery.py)."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.render.escaping import MARK, word
from headway.render.machine_paths import AGENT_PROGRAM
from headway.render.system.systemd_files import UNITS

FILTER = "/etc/slurm/cli_filter.lua"
RECALL = "headway-recall.service"

# Lua 5.1, run by sbatch, srun and salloc. An error here does not stop the submission.
_FILTER = f"""\
-- {MARK}
-- A line a submission to this cluster in the person's home: job, second, command line. The head reads the last minute's where
-- the controller was killed, for what it had accepted and not yet saved.
local MOST = 65536

local function read(path)
    local file = io.open(path, "rb")
    if not file then return "" end
    local text = file:read("*a")
    file:close()
    return text
end

local function note(job)
    local home = os.getenv("HOME")
    if not home or not read("/proc/self/comm"):match("^sbatch") then return end
    local argv = read("/proc/self/cmdline")
    if #argv > MOST then return end
    local path = home .. "/.headway-submitted-@CLUSTER@"
    local file = io.open(path, "ab")
    if not file then return end
    if file:seek("end") > 2 * MOST then
        file:close()
        file = io.open(path, "wb")
    end
    local hex = argv:gsub(".", function(c) return string.format("%02x", c:byte()) end)
    file:write(string.format("%d %d %s\\n", job, os.time(), hex))
    file:close()
end

function slurm_cli_setup_defaults(options, early_pass) return slurm.SUCCESS end

function slurm_cli_pre_submit(options, offset) return slurm.SUCCESS end

-- Called for each component of a heterogeneous job, which is one submission.
function slurm_cli_post_submit(offset, job, step)
    if offset == 0 then pcall(note, job) end
    return slurm.SUCCESS
end
"""

_UNIT = f"""\
# {MARK}
[Unit]
Description=Headway: jobs that the controller forgot
After=slurmctld.service
StartLimitIntervalSec=3600
StartLimitBurst=20
[Service]
Type=oneshot
ExecStart=/usr/bin/python3 -I -S {AGENT_PROGRAM} recall
# The accounting database may take its time after the same crash.
Restart=on-failure
RestartSec=10
"""

# For slurmctld's unit: `keep` runs before slurmctld deletes the scripts of unknown jobs, the recall unit after it
# answers.
AROUND = f"""\
ExecStartPre=+-/usr/bin/python3 -I -S {AGENT_PROGRAM} keep
ExecStartPost=+-/usr/bin/systemctl start --no-block {RECALL}
"""


def files(cluster: Cluster, *, recalls: bool) -> dict[str, File]:
    """Returns the files of a head. `recalls`: this head resubmits lost jobs; only one may, or they would run twice."""
    notes = _FILTER.replace("@CLUSTER@", word(cluster.name, "name"))
    return {FILTER: File(notes), **({f"{UNITS}/{RECALL}": File(_UNIT)} if recalls else {})}
