"""Makes a fault on a machine, or heals it. Sent as the program text of `python3 -c` with one JSON argument; runs as
root. Needs only the standard library.

  {"do": "xid", "code": 79, "gpu": 3, "text": ""}   writes the driver's log line, then ends the processes on that GPU
                                                    (XID 79: the GPU also disappears)
  {"do": "ecc" | "throttle", "gpu": 3}              the simulated GPU reports it
  {"do": "bad-memory" | "bad-compute", "gpu": 3}    the simulated GPU errs and reports nothing: only node tests find it
  {"do": "slow-disk" | "full-disk" | "mount-lost"}  slows the disk of /scratch; fills /tmp; unmounts /scratch
  {"do": "stall-job"}                                stops the processes of all jobs (SIGSTOP)
  {"do": "kill", "unit": "slurmd"}                  kills the unit's main process, as a crash would

Each with "heal": true undoes it. "real": true says that the machine is a real one, which must not be broken: an XID is
only written to its kernel's log. Faults that only a simulated GPU can have are refused on real GPUs."""

import contextlib
import errno
import json
import os
import signal
import stat
import subprocess
import sys
import time

LOG = "/run/headway/kmsg"
KERNEL = "/dev/kmsg"
LOCAL7 = 23 << 3  # the agent accepts local7 as the kernel's, because programs can't use the kernel's own facility
SETTINGS = "/etc/headway/gpus.json"
MADE = "/run/headway/faults"  # one file for each fault; the simulated GPUs read them
REFUSED = 97
FALLEN_OFF = 79
SLOW_BYTES_PER_S = 1 << 20
SAYS = {  # XID -> the driver's text
    79: "GPU has fallen off the bus.",
    48: "DBE (double bit error) ECC Error",
    31: "MMU Fault: ENGINE GRAPHICS",
    154: "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)",
}
SPARED = {"bash", "sh", "dash", "srun", "slurmstepd"}  # they start the programs that use a GPU, and use none themselves


def refuse(sentence):
    """Ends the program with REFUSED and the sentence on standard error."""
    sys.stderr.write(sentence + "\n")
    sys.exit(REFUSED)


def pci_bus_id(gpu):
    """Returns the GPU's PCI address, the same that the simulated nvidia-smi prints."""
    return f"0000:{0x19 + 0x11 * gpu & 0xFF:02x}:00"


def workers():
    """Yields (pid, environment) of the processes of users' jobs on this machine."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if os.stat(f"/proc/{name}").st_uid < 1000:
                continue
            with open(f"/proc/{name}/environ", "rb") as file:
                pairs = (pair.split(b"=", 1) for pair in file.read().split(b"\0") if b"=" in pair)
                env = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in pairs}
            with open(f"/proc/{name}/comm") as file:
                comm = file.read().strip()
        except OSError:
            continue
        if comm not in SPARED and "SLURM_JOB_ID" in env:
            yield int(name), env


def holders(gpu):
    """Returns the pids of job processes that were given this GPU."""
    return [
        pid
        for pid, env in workers()
        if str(gpu) in (env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS") or "").split(",")
    ]


def send_signal(pids, number):
    """Sends the signal to those processes that still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def remember(name, text):
    """Stores the fault's value in the file `name`."""
    os.makedirs(MADE, mode=0o755, exist_ok=True)
    with open(f"{MADE}/{name}", "w") as file:
        file.write(text)


def forget(name):
    """Deletes the fault's file and returns its content; "" if there was none."""
    with contextlib.suppress(FileNotFoundError):
        with open(f"{MADE}/{name}") as file:
            text = file.read()
        os.unlink(f"{MADE}/{name}")
        return text
    return ""


# --- GPUs


def xid(request):
    """Makes or heals an XID error."""
    if request["heal"]:
        return heal_gpus(request)
    code, gpu = int(request["code"]), int(request["gpu"])
    doomed = holders(gpu)
    words = request["text"] or SAYS.get(code, "made by headway fault")
    pid = f"pid={doomed[0]}, " if doomed else "pid='<unknown>', "
    message = f"NVRM: Xid (PCI:{pci_bus_id(gpu)}): {code}, {pid}{words}"
    if request.get("real"):
        with open(KERNEL, "w") as file:
            file.write(f"<{LOCAL7 | 4}>{message}\n")
        return f"{message} (in the kernel's log; nothing else was done)"
    number = sum(1 for _ in open(LOG)) if os.path.exists(LOG) else 0  # noqa: SIM115
    with open(LOG, "a") as file:
        file.write(f"4,{number},{int(time.monotonic() * 1e6)},-;{message}\n")
    time.sleep(0.3)  # the kernel's log line comes before the processes end
    if code == FALLEN_OFF and os.path.exists(f"/dev/nvidia{gpu}"):
        os.unlink(f"/dev/nvidia{gpu}")
    send_signal(doomed, signal.SIGKILL)
    return f"{message} ({len(doomed)} processes on GPU {gpu} ended)"


def heal_gpus(request):
    """Brings back all simulated GPUs and clears the simulated kernel log."""
    if os.path.exists(LOG) and not request.get("real"):
        os.unlink(LOG)
    with open(SETTINGS) as file:
        count = json.load(file)["count"]
    for gpu in range(count):
        if not os.path.exists(f"/dev/nvidia{gpu}"):
            os.mknod(f"/dev/nvidia{gpu}", 0o666 | stat.S_IFCHR, os.makedev(195, gpu))
            os.chmod(f"/dev/nvidia{gpu}", 0o666)
    return "its GPUs work again; their incident is returned with headway incident return"


def of_gpu(name, text, words):
    """Returns the function that makes and heals a fault of a simulated GPU, stored as the file gpuN-NAME."""

    def do(request):
        if request["heal"]:
            forget(f"gpu{request['gpu']}-{name}")
            return f"GPU {request['gpu']} is well again"
        remember(f"gpu{request['gpu']}-{name}", text)
        return f"GPU {request['gpu']} {words}"

    return do


# --- disks


def disk_of(path):
    """Returns "MAJOR:MINOR" of the whole disk that contains the path."""
    found = os.stat(path).st_dev
    name = f"{os.major(found)}:{os.minor(found)}"
    place = f"/sys/dev/block/{name}"
    if not os.path.exists(place):
        refuse(f"{path} is on no disk of its own that could be slowed down")
    if os.path.exists(f"{place}/partition"):
        with open(os.path.join(os.path.realpath(place), "..", "dev")) as file:
            name = file.read().strip()
    return name


def slow_disk(request):
    """Throttles the disk of /scratch for this machine. With cgroup v2 the root of a namespace can't be limited from
    inside, so system.slice is limited, which contains all services and jobs."""
    disk = disk_of("/scratch")
    throttle = "/sys/fs/cgroup/blkio/blkio.throttle"
    if os.path.exists(f"{throttle}.write_bps_device"):
        rate = 0 if request["heal"] else SLOW_BYTES_PER_S
        lines = {f"{throttle}.{way}_bps_device": f"{disk} {rate}" for way in ("read", "write")}
    else:
        rate = "max" if request["heal"] else SLOW_BYTES_PER_S
        lines = {"/sys/fs/cgroup/system.slice/io.max": f"{disk} rbps={rate} wbps={rate}"}
    for path, line in lines.items():
        try:
            with open(path, "w") as file:
                file.write(line)
        except OSError as error:
            refuse(f"this kernel can't slow disk {disk} down: {error}")
    return (
        f"disk {disk} is as fast as ever"
        if request["heal"]
        else f"disk {disk} takes {SLOW_BYTES_PER_S >> 20} MiB a second"
    )


def full_disk(request):
    """Fills /tmp, the node's tmpfs: it is shrunk to what it contains, and filled."""
    rest = "/tmp/.headway-fault"
    if request["heal"]:
        with contextlib.suppress(FileNotFoundError, IsADirectoryError):
            os.unlink(rest)
        size = forget("full-disk")
        if size:
            run_command("mount", "-o", f"remount,size={size}", "/tmp")
        return "/tmp has room again"
    if not os.path.ismount("/tmp"):
        refuse("/tmp is no file system of its own here: it is not filled")
    try:
        own = open(rest, "ab", buffering=0, opener=own_file)  # noqa: SIM115  (closed below)
    except OSError as error:
        refuse(f"{rest} can't be written: {error.strerror}")
    now = os.statvfs("/tmp")
    size = now.f_blocks * now.f_frsize
    if not os.path.exists(f"{MADE}/full-disk"):
        remember("full-disk", str(size))
    run_command("mount", "-o", f"remount,size={size - now.f_bfree * now.f_frsize + (1 << 20)}", "/tmp")
    with own as file:
        try:
            while True:
                file.write(bytes(1 << 16))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
    return "/tmp is full"


def own_file(path, flags):
    """Opens a file of root in a folder where every user can make files: neither a link nor another user's file."""
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
        os.close(handle)
        refuse(f"{path} is not root's own file: remove it")
    return handle


def mount_lost(request):
    """Unmounts /scratch lazily, or mounts it again."""
    if request["heal"]:
        if not os.path.ismount("/scratch"):
            run_command("systemctl", "restart", "scratch.mount")
        return "/scratch is mounted"
    if not os.path.ismount("/scratch"):
        refuse("/scratch is not mounted")
    run_command("umount", "--lazy", "/scratch")
    return "/scratch is lost"


# --- processes


def stall_job(request):
    """Stops or continues the processes of all jobs."""
    found = [pid for pid, _ in workers()]
    send_signal(found, signal.SIGCONT if request["heal"] else signal.SIGSTOP)
    if request["heal"]:
        return f"{len(found)} processes go on"
    if not found:
        refuse("no job runs here")
    return f"{len(found)} processes of jobs stand still"


def kill(request):
    """Kills the unit's main process, or starts the unit again."""
    unit = request["unit"]
    if request["heal"]:
        run_command("systemctl", "reset-failed", unit, check=False)
        run_command("systemctl", "start", unit)
        return f"{unit} runs"
    # only the main process: slurmd's unit may also contain its jobs' slurmstepd
    run_command("systemctl", "kill", "--signal=KILL", "--kill-whom=main", unit)
    return f"{unit} is killed"


def run_command(*argv, check=True):
    """Runs a command; refuses the request if it fails."""
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=50)
    if check and ran.returncode:
        refuse(f"{' '.join(argv)}: {ran.stderr.strip()}")


DO = {
    "xid": xid,
    "ecc": of_gpu("ecc", "1", "has a double-bit memory error that it can't mend"),
    "throttle": of_gpu("throttle", "thermal", "is throttled by its heat"),
    "bad-memory": of_gpu("bad-memory", "", "reads one bit of its memory wrong and reports no error"),
    "bad-compute": of_gpu("bad-compute", "", "computes wrong results on one multiprocessor and reports no error"),
    "slow-disk": slow_disk,
    "full-disk": full_disk,
    "mount-lost": mount_lost,
    "stall-job": stall_job,
    "kill": kill,
}
NEED_SIMULATED = ("ecc", "throttle", "bad-memory", "bad-compute")


def main():
    request = json.loads(sys.argv[1])
    kind = request["do"]
    simulated = os.path.exists(SETTINGS)
    if kind in NEED_SIMULATED and not simulated:
        refuse(f"its GPUs are real: {kind} can't be made on them")
    if kind == "xid" and not simulated and not request.get("real"):
        refuse("it has no simulated GPUs: no fault is made on a real one")
    print(json.dumps({"done": DO[kind](request)}))


if __name__ == "__main__":
    main()
