"""cli_filter.lua: sbatch notes each submission in the user's home, so that submissions that a killed slurmctld had not saved
are submitted again (`queue_recovery_unit`), and warns where --mail-type sends no mail, --container names no bundle or --gres
wants more shards than a GPU has. No submission is refused or changed here."""

from __future__ import annotations

from headway.catalog.node_images import slurm_release
from headway.domain.cluster import Cluster
from headway.domain.machines.managed_file import File
from headway.render.escaping import MARK, require_word

PATH = "/etc/slurm/cli_filter.lua"

# Lua 5.1, run by sbatch, srun and salloc. An error here does not stop the submission.
_FILTER = f"""\
-- {MARK}
-- Writes one line per submission to a file in the user's home: job id, time, command line. After a crash of the controller the
-- head reads the lines of the last minute and resubmits jobs that the controller had accepted but not saved.
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

local function warn(text)
    io.stderr:write(read("/proc/self/comm"):match("%S*") .. ": " .. text .. "\\n")
end

local function check(options, offset)
@CHECKS@end

function slurm_cli_pre_submit(options, offset)
    pcall(check, options, offset)
    return slurm.SUCCESS
end

-- Slurm calls this for each component of a heterogeneous job; only the first one is recorded.
function slurm_cli_post_submit(offset, job, step)
    if offset == 0 then pcall(note, job) end
    return slurm.SUCCESS
end
"""

_NO_MAIL = """\
    local mail = options["mail-type"]
    if offset == 0 and mail and mail ~= "" and mail ~= "NONE" then
        warn("--mail-type=" .. mail .. ": no mail will be sent, because this cluster has no mail server; an administrator "
            .. "sets one in the cluster file: mail: {relay: HOST:25}")
    end
"""
# Slurm only writes "Unspecified error".
_NO_BUNDLE = """\
    local bundle = options["container"]
    if bundle and bundle:match("^/") and read(bundle .. "/config.json") == "" then
        warn("--container=" .. bundle .. ": " .. bundle .. "/config.json can't be read here; an OCI bundle is a folder with "
            .. "config.json and the image's files, on storage that every node has")
    end
"""
_NO_OCI = """\
    local bundle = options["container"]
    if bundle and bundle:match("%S") then
        warn("--container: this Slurm does not run OCI bundles; use --container-image")
    end
"""
# Slurm lets such a job wait for ever, with the reason "Resources".
_TOO_MANY_SHARDS = """\
    local shards = tonumber((options["gres"] or ""):match("shard[^,]*[:=](%d+)") or "")
    if shards and shards > @MOST@ then
        warn("--gres=shard:" .. shards .. ": a job gets all its shards of a node on one GPU, which has @MOST@: "
            .. "it can never start")
    end
"""


def files(cluster: Cluster) -> dict[str, File]:
    """Returns the plugin's file, which every head has."""
    text = _FILTER.replace("@CLUSTER@", require_word(cluster.name, "name"))
    warnings = "" if cluster.mail_relay else _NO_MAIL
    warnings += _NO_BUNDLE if slurm_release(cluster.slurm_version).runs_oci_bundles else _NO_OCI
    if most := max((group.parts.shards for group in cluster.groups), default=0):
        warnings += _TOO_MANY_SHARDS.replace("@MOST@", str(most))
    return {PATH: File(text.replace("@CHECKS@", warnings))}
