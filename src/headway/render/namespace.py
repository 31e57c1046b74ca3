"""The mount namespace of slurmd on machines that are containers.

job_container/tmpfs keeps a job's namespace by binding its file into slurmd's own. The kernel allows that only when the
job's namespace has the higher number. Linux 6.18 hands numbers out in blocks, one a CPU, so a new namespace may well be
numbered below that of the machine, which is then no longer the first of all; the job's launch fails, at random. So slurmd
runs in a namespace made on the CPU whose numbers are lowest; they only grow. A process of its own holds it, so
that slurmd can be restarted under running jobs."""

from __future__ import annotations

from headway.domain.files import File
from headway.render.text import MARK

PROGRAM = "/usr/local/libexec/headway-job-namespace"
UNIT = "headway-job-namespace.service"
PID_FILE = "/run/headway/job-namespace.pid"
ENTER = f"/bin/sh -c 'exec nsenter --mount=/proc/$$(cat {PID_FILE})/ns/mnt -- \"$$@\"' --"

_PROGRAM = f'''\
#!/usr/bin/python3
# {MARK}
"""Holds the mount namespace that slurmd runs in: one numbered below any that a job will get, on whatever CPU."""

import ctypes
import fcntl
import os
import signal
import struct

CLONE_NEWNS, MS_REC, MS_SLAVE = 0x00020000, 0x4000, 1 << 19
NS_GET_MNTNS_ID = 0x8008B705
libc = ctypes.CDLL(None, use_errno=True)


def check(result, what):
    if result != 0:
        raise OSError(ctypes.get_errno(), what)


def fresh(cpu):
    """Moves into a new namespace made on `cpu`; its number, 0 where the kernel does not tell."""
    os.sched_setaffinity(0, {{cpu}})
    check(libc.unshare(CLONE_NEWNS), "unshare")
    # Volumes mounted on the machine later appear here too; nothing mounted here appears outside.
    check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_SLAVE), None), "mount")
    file = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    try:
        return struct.unpack("Q", fcntl.ioctl(file, NS_GET_MNTNS_ID, bytes(8)))[0]
    except OSError:
        return 0
    finally:
        os.close(file)


cpus = os.sched_getaffinity(0)
for _ in range(8):
    numbers = {{cpu: fresh(cpu) for cpu in cpus}}
    lowest = min(numbers, key=numbers.get)
    mine = fresh(lowest)
    if all(mine < number for cpu, number in numbers.items() if cpu != lowest) or mine == 0:
        break
os.sched_setaffinity(0, cpus)
with open("{PID_FILE}.new", "w") as out:
    out.write(str(os.getpid()))
os.replace("{PID_FILE}.new", "{PID_FILE}")
notify = os.environ.get("NOTIFY_SOCKET")
if notify:
    import socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.sendto(b"READY=1", "\\0" + notify[1:] if notify[0] == "@" else notify)
signal.pause()
'''

_UNIT = f"""\
# {MARK}
[Unit]
Description=Mount namespace of slurmd and its jobs
Before=slurmd.service
# Volumes first: what is mounted before it is there at once, what comes later too.
After=local-fs.target
[Service]
Type=notify
ExecStart={PROGRAM}
OOMScoreAdjust=-900
[Install]
WantedBy=multi-user.target
"""


def namespace_files() -> dict[str, File]:
    return {PROGRAM: File(_PROGRAM, mode=0o755), f"/etc/systemd/system/{UNIT}": File(_UNIT)}
