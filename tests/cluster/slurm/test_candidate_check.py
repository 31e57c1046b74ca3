"""The real Slurm programs check a candidate configuration, also when slurmctld prints additional messages."""

from __future__ import annotations

import pytest
from tests.cluster.lab import Done, Lab

from headway.render.slurm.candidate_check import candidate_check

# A slurmctld that prints MORE before it is up and again when it is stopped, as the real one does on a busy machine.
STAND_IN = """\
#!/bin/bash
trap 'echo "slurmctld: error: _write_msg: read/write op failed: Broken pipe"; exit 0' TERM
echo '{before}'
echo 'slurmctld: Running as primary controller'
for _ in $(seq 200); do sleep 0.05; done
"""
FOLDER = "/run/headway-stand-in"


def tried(lab: Lab, before: str) -> Done:
    """Checks the cluster's own files with a slurmctld that prints `before` while it reads them."""
    script = 'mkdir -p "$0"; cat >"$0/slurmctld"; chmod -R 755 "$0"'
    lab.head("sh", "-c", script, FOLDER, stdin=STAND_IN.format(before=before))
    [check] = candidate_check("/etc/slurm")
    try:
        return lab.head("env", f"PATH={FOLDER}:/usr/sbin:/usr/bin:/sbin:/bin", *check, check=False)
    finally:
        lab.head("rm", "-r", FOLDER)


def test_messages_while_stopping_slurmctld_are_not_config_errors(lab: Lab) -> None:
    done = tried(lab, "slurmctld: slurmctld version 24.11.5 started")
    assert (done.code, done.err) == (0, "")


@pytest.mark.parametrize("text", ["slurmctld: error: Unable to find plugin", "slurmctld: fatal: no partition"])
def test_messages_before_startup_are_config_errors(lab: Lab, text: str) -> None:
    done = tried(lab, text)
    assert done.code != 0
    assert text in done.err


def test_slurmctld_that_hangs_is_killed_and_another_one_reads_the_files(lab: Lab) -> None:
    hanging = f'#!/bin/bash\n[ -e {FOLDER}/hung ] && exec /usr/sbin/slurmctld "$@"\n'
    hanging += f"touch {FOLDER}/hung\ntrap '' TERM\nwhile :; do sleep 0.1; done\n"
    lab.head("sh", "-c", 'mkdir -p "$0"; cat >"$0/slurmctld"; chmod -R 777 "$0"', FOLDER, stdin=hanging)
    [check] = candidate_check("/etc/slurm")
    quick = [word.replace("timeout -k 5 30 setpriv", "timeout -k 1 5 setpriv") for word in check]
    assert quick != check
    try:
        done = lab.head("env", f"PATH={FOLDER}:/usr/sbin:/usr/bin:/sbin:/bin", *quick, check=False)
        assert (done.code, lab.head("ls", FOLDER).out.split()) == (0, ["hung", "slurmctld"]), done.err
    finally:
        lab.head("rm", "-r", FOLDER)


@pytest.mark.parametrize("level", ["quiet", "debug5"])
def test_config_check_works_at_any_slurm_log_level(lab: Lab, level: str) -> None:
    [check] = candidate_check(FOLDER)
    add = 'cat >>"$0/slurm.conf"'
    try:
        levels = f"SlurmctldDebug={level}\nSlurmdDebug={level}\n"
        lab.head("sh", "-c", f'cp -r /etc/slurm "$0"; {add}', FOLDER, stdin=levels)
        good = lab.head(*check, check=False)
        lab.head("sh", "-c", add, FOLDER, stdin="Bogus=1\n")
        bad = lab.head(*check, check=False)
    finally:
        lab.head("rm", "-r", FOLDER)
    assert (good.code, good.err) == (0, "")
    assert bad.code != 0
    assert "Bogus" in bad.err
