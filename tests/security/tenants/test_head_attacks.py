"""What a user on the head can learn and do about other users."""

from __future__ import annotations

from tests.cluster.lab import Lab

_MANAGER = "org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager GetUnitProcesses s"
_LOOK = f"""\
ps -eo args
cat /proc/[0-9]*/cmdline | tr '\\0' ' '
systemctl status --full --no-pager
for unit in ssh.service user.slice system.slice; do busctl call {_MANAGER} $unit; done
for unit in ssh_2eservice user_2eslice system_2eslice; do
    for kind in Service Slice; do
        busctl call org.freedesktop.systemd1 /org/freedesktop/systemd1/unit/$unit org.freedesktop.systemd1.$kind GetProcesses
    done
done
exit 0
"""
# It stops by itself where there is no limit, and after ten minutes.
_BOMB = """\
import os, time
made = 0
try:
    while made < 4000:
        if os.fork() == 0:
            os.setsid()
            os.closerange(0, 3)
            time.sleep(600)
            os._exit(0)
        made += 1
except OSError as error:
    print(error)
print(made, "processes", flush=True)
"""

# Listens on two ports and prints which of them can be connected to.
_LISTEN = """\
import socket, sys
own = socket.gethostbyname(socket.gethostname())
for port in (8470, 8471):
    with socket.create_server(("0.0.0.0", port)):
        try:
            socket.create_connection((own, port), timeout=3).close()
            print(port)
        except OSError as error:
            print(port, type(error).__name__)
"""


def test_users_of_the_head_cannot_answer_requests_to_services(lab: Lab) -> None:
    """The cluster has no service, so its proxy does not have the port."""
    assert lab.head("python3", "-c", _LISTEN, user="alice").out.splitlines() == ["8470 TimeoutError", "8471"]


def test_users_see_only_their_own_processes_on_the_head(lab: Lab) -> None:
    """carol's command has a password in its arguments."""
    lab.head("systemd-run", "--unit=victim", "--uid=carol", "--collect", "sleep", "600.1234")
    try:
        looked = lab.head("bash", "-c", _LOOK, user="alice")
        assert "bash -c" in looked.out, "alice sees her own"
        assert "600.1234" not in looked.out + looked.err
        assert "600.1234" in lab.head("ps", "-eo", "args").out, "root sees all"
        assert "victim.service" in lab.head("systemctl", "status", "victim").out
    finally:
        lab.head("systemctl", "stop", "victim")


def test_head_works_with_hidden_processes(lab: Lab) -> None:
    """systemd-logind, which looks at processes without being root's equal, answers, and no unit has failed."""
    assert lab.head("systemctl", "--failed", "--no-legend", "--plain").out == ""
    lab.head("loginctl", "list-sessions", user="alice")


def test_a_fork_bomb_on_the_head_takes_only_its_own_users_processes(lab: Lab) -> None:
    found = lab.head("python3", "-c", _BOMB, user="alice").out
    assert "Resource temporarily unavailable" in found
    assert int(found.split()[-2]) < 2048
    uid = lab.head("id", "-u", "alice").out.strip()
    try:
        lab.head("squeue", "-h", user="carol")
        assert int(lab.head("pgrep", "-c", "-U", uid, "python3").out) > 1000, "the bomb still has its processes"
    finally:
        lab.head("pkill", "-KILL", "-U", uid, "python3")


def test_requests_of_one_user_to_slurm_are_limited_and_others_are_not_delayed(lab: Lab) -> None:
    """alice asks for the queue as fast as she can; after 200 requests Slurm tells her commands to wait."""
    ask = "for i in $(seq 300); do squeue -h >/dev/null || exit 1; done"
    loops = " & ".join([f"({ask})"] * 4)
    lab.head("systemd-run", "--unit=asks", "--uid=alice", "--collect", "bash", "-c", f"{loops} & wait")
    try:
        log = ("journalctl", "--unit=slurmctld", "--no-pager", "--output=cat", "--lines=200")
        uid = lab.head("id", "-u", "alice").out.strip()
        limited = f"RPC rate limit exceeded by uid {uid} "
        lab.wait(lambda: limited in lab.head(*log).out, "Slurm to tell alice's commands to wait")
        lab.head("squeue", "-h", user="carol")
        assert "RPC rate limit exceeded by uid " not in lab.head(*log).out.replace(limited, "")
        assert lab.head("systemctl", "is-active", "asks", check=False).out.strip() == "active", "alice is still delayed"
    finally:
        lab.head("systemctl", "stop", "asks", check=False)
