"""Renders the check that runs before slurmctld starts on an owned machine: the folder with Slurm's state must exist,
and the state must be in it.

A file system that is not mounted leaves an empty folder or none, and a controller started there would know no jobs. If
the cluster file names a new folder, the first head copies the state there while no controller runs."""

from __future__ import annotations

from headway.domain.cluster import SLURM_STATE_FOLDER, Cluster
from headway.domain.machines.managed_file import File
from headway.render.escaping import path, script

PROGRAM = "/usr/lib/headway/state-folder"
LAST = "/srv/headway-state/slurmctld-is-at"  # contains the folder of the last start
BEATS_S = 5  # a controller writes one heartbeat per second
START_S = 1800  # longest start of slurmctld, with the scripts of many thousand jobs to copy


def files(cluster: Cluster, *, first: bool) -> dict[str, File]:
    """Returns the program of a head. `first`: it is the first head, the only one that ever moves the state."""
    if cluster.provider.provides_head_state:
        return {}
    return {PROGRAM: File(_program(path(cluster.state_folder, "storage.state"), first=first), mode=0o755)}


def _program(now: str, *, first: bool) -> str:
    return "#!/bin/sh\n" + script(
        "set -eu",
        f'now={now} last={LAST} own={SLURM_STATE_FOLDER} was=""',
        'die() { echo "$1" >&2; exit 1; }',
        *(_COMES_ALONG if first else ()),
        '[ -d "$now" ] || die "the folder of Slurm\'s state, $now, does not exist: is it mounted?"',
        *(_SHARED if now != SLURM_STATE_FOLDER else ()),
        *(_MOVE if first else ()),
    )


# A controller that still runs in the old folder would continue with the copied queue. The heartbeat file is missing for a
# moment while it is replaced, so any difference counts as a heartbeat.
_QUIET = (
    'beat() { cat "$was/heartbeat" 2>/dev/null | od -A n -t x1; }',
    "quiet() {",
    '    [ -e "$was/leads" ] || return 0  # only a cluster with two heads has a heartbeat',
    f"    one=$(beat); sleep {BEATS_S}",
    '    [ "$one" = "$(beat)" ] || die "a controller still uses $was, from where Slurm\'s state is to be copied"',
    "}",
)
# Completes a move that was interrupted between its last two steps.
_COMES_ALONG = ('[ -d "$now" ] || [ ! -d "$now.coming" ] || mv "$now.coming" "$now"',)
_SHARED = (
    "# If its file system is not mounted, the folder is on this machine's own disk, which the other machines don't share.",
    '[ "$(stat -c %d "$now")" != "$(stat -c %d /)" ] || die "$now is on this machine\'s own disk: is it mounted?"',
)
_MOVE = (
    *_QUIET,
    '[ ! -e "$last" ] || was=$(cat "$last")',
    "# If the cluster file names a new folder, copies Slurm's state there and keeps the new folder's earlier content. With an",
    "# unchanged folder it compares no times and writes nothing: clocks of file servers differ, and a disk may be full.",
    'if [ "${was:-$own}" != "$now" ]; then',
    '    [ -z "$was" ] || [ -d "$was" ] || die "Slurm\'s state is to be copied from $was, which does not exist: is it mounted?"',
    "    was=${was:-$own}",
    '    if [ -e "$was/job_state" ] && { [ ! -e "$now/job_state" ] || [ "$was/job_state" -nt "$now/job_state" ]; }; then',
    "        quiet",
    '        rm -rf "$now.coming" "$now.before"',
    '        cp -a "$was" "$now.coming"',
    "        quiet",
    '        mv "$now" "$now.before"',
    '        mv "$now.coming" "$now"',
    "    fi",
    '    echo "$now" >"$last.new"',
    '    mv "$last.new" "$last"',
    "fi",
)
