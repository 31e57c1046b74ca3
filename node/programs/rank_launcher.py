#!/usr/bin/env python3
"""Started by `headway run` between Slurm and a program: sets where the ranks meet, which network and which CPUs they use.

Stored next to a user's bundles and run as the user, on the host or in a container. Needs only the standard library and
Python 3.8 or newer. It changes no variable that is already set.

  rank_launcher.py job                 once for each job, in the batch script: prints lines for `eval` (MASTER_ADDR,
                                      MASTER_PORT, HEADWAY_HOSTFILE)
  rank_launcher.py quote ARGV...       prints ARGV for HEADWAY_COMMAND, which tasks of srun get it from: Slurm shows the
                                      arguments of srun to all users
  rank_launcher.py task [-- ARGV...]   once for each task: sets network, threads and ranks for this node, then becomes ARGV
  rank_launcher.py run [AFTER...] -- ARGV...  instead of the batch script: `task` in another process, which gets SIGTERM too, then
                                      command AFTER if it succeeded, then `end`
  rank_launcher.py end CODE            after the program: waits for Slurm's requeue if a node was lost, else ends with CODE
  rank_launcher.py PYTHON-ARGS...      as torchrun's interpreter (PYTHON_EXEC): binds to the CPUs near the worker's GPU,
                                      then becomes Python"""

import contextlib
import errno
import fcntl
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

SYS = "/sys"
PROC = "/proc"
RUN_MODULE = "torch.distributed.run"
# Below the range of ports that the kernel uses for outgoing connections; the same numbers are in ray_cluster.py.
FIRST_PORT, PORTS = 20000, 12000
LOST_NODE_S = 900


def main(words):
    if words[:1] == ["job"]:
        for name, value in job(os.environ).items():
            print(f"export {name}={shlex.quote(value)}")
        return 0
    if words[:1] == ["quote"]:
        print(shlex.join(words[1:]))
        return 0
    if words[:1] == ["task"]:
        return task(words[2:])
    if words[:1] == ["run"]:
        at = words.index("--")
        return run(words[at + 1 :], words[1:at])
    if words[:1] == ["end"]:
        return end(int(words[1]))
    near = gpu_cpus(os.environ.get("LOCAL_RANK", ""), os.environ)
    bind_to_cpus(near)
    return exec_command([os.environ.get("HEADWAY_PYTHON") or sys.executable, *words])


def run(argv, after=()):
    """Runs `task` in a process of its own, then command `after` if the program succeeded, then `end`. Returns the exit code as
    bash does. Slurm sends SIGTERM to the batch script alone, and kills the job's other processes when the script ends: so the
    program gets the signal too and is waited for. Then the signal ends the script, as it ends other scripts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # it ends the script, as it ends other scripts, without a traceback
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    program = os.fork()
    if program == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        return task(argv)
    terminated = []

    def pass_on(*_):
        terminated.append(True)
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(program, signal.SIGTERM)

    signal.signal(signal.SIGTERM, pass_on)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    status = os.waitpid(program, 0)[1]
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if terminated:
        os.kill(os.getpid(), signal.SIGTERM)
    if status == 0 and after and subprocess.run(after).returncode != 0:
        return end(1)
    return end(128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))


def exec_command(argv):
    """Replaces this process with the command. Returns the exit status if that fails."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and its children would
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        where = "in the container or on" if os.environ.get("HEADWAY_CONTAINER") else "on"
        print(f"headway: {argv[0]}: {error.strerror} ({where} {os.uname().nodename})", file=sys.stderr)
        return 127 if error.errno == errno.ENOENT else 126


# --- once for each job


def job(env):
    """Returns MASTER_ADDR, MASTER_PORT and HEADWAY_HOSTFILE of this job; runs on its first node."""
    nodes = hostnames(env.get("SLURM_JOB_NODELIST", "")) or [os.uname().nodename]
    found = {"MASTER_ADDR": env.get("MASTER_ADDR") or nodes[0]}
    found["MASTER_PORT"] = env.get("MASTER_PORT") or str(free_port(int(env.get("SLURM_JOB_ID", "0"))))
    path = os.path.join(os.getcwd(), "hostfile." + env.get("SLURM_JOB_ID", "0"))
    slots = first_number(env.get("SLURM_GPUS_ON_NODE")) or first_number(env.get("SLURM_NTASKS_PER_NODE")) or 1
    try:
        with open(path, "w") as file:
            file.writelines(f"{node} slots={slots}\n" for node in nodes)
        found["HEADWAY_HOSTFILE"] = path
    except OSError as error:
        print(f"headway: no host file: {error}", file=sys.stderr)
    return found


def hostnames(nodelist):
    """Returns the nodes of a hostlist, from scontrol."""
    if not nodelist:
        return []
    ran = subprocess.run(["scontrol", "show", "hostnames", nodelist], capture_output=True, text=True, timeout=30)
    return ran.stdout.split()


def free_port(job_id):
    """Returns the first free port, starting at one that depends on the job: two jobs on one node start at different
    ports."""
    for step in range(PORTS):
        port = FIRST_PORT + (job_id * 7 + step) % PORTS
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise SystemExit("headway: every port of this node is taken")


def end(code):
    """Returns the program's exit code, after waiting for Slurm's requeue if a node no longer answers. When a node dies,
    the ranks on other nodes end within a second, sooner than Slurm can notice; then the node has failed and not the
    program."""
    nodes = first_number(os.environ.get("SLURM_JOB_NUM_NODES")) or 1
    if code == 0 or nodes < 2:
        return code
    ask = ["srun", "--overlap", "--ntasks-per-node=1", "--nodes", str(nodes), "true"]
    try:
        answers = subprocess.run(ask, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        answers = False
    if not answers:
        print(f"--- job {os.environ.get('SLURM_JOB_ID')} lost a node; waiting to be requeued ---", flush=True)
        time.sleep(LOST_NODE_S)
    return code


# --- once for each task


def task(argv):
    """Becomes the command: `argv`, or HEADWAY_COMMAND. Returns the exit status if that fails."""
    given = shlex.split(os.environ.pop("HEADWAY_COMMAND", ""))
    argv = with_torchrun(argv or given)
    os.environ.update(venv(argv, os.environ))
    os.environ.update(task_variables(dict(os.environ), argv))
    return exec_command(argv)


def task_variables(env, argv, sys_root=SYS):
    """Returns the variables that this task's environment lacks, and binds the task to CPUs."""
    if env.get("HEADWAY_LAUNCHER") == "ray":  # which divides the CPUs of its node among its own workers
        return {name: value for name, value in network(env, sys_root).items() if not env.get(name)}
    found = {**ranks(env), **network(env, sys_root), **threads(env), **torchrun_log_variables(env)}
    found = {name: value for name, value in found.items() if not env.get(name)}
    if env.get("HEADWAY_LAUNCHER") == "torchrun":
        python = torchrun_python(argv)
        if python and gpu_cpus("0", env, sys_root) and not env.get("PYTHON_EXEC"):
            found["PYTHON_EXEC"] = os.path.abspath(__file__)
            found["HEADWAY_PYTHON"] = python
    elif env.get("SLURM_LOCALID"):
        bind_to_cpus(gpu_cpus(env["SLURM_LOCALID"], env, sys_root))
    return found


def ranks(env):
    """Returns Slurm's numbers under the names that torch.distributed and DeepSpeed read; {} for other launchers, as
    torchrun sets its own."""
    names = {"RANK": "SLURM_PROCID", "WORLD_SIZE": "SLURM_NTASKS", "LOCAL_RANK": "SLURM_LOCALID"}
    names["LOCAL_WORLD_SIZE"] = "SLURM_STEP_TASKS_PER_NODE"
    if env.get("HEADWAY_LAUNCHER") != "srun":
        return {}
    found = {name: env[source] for name, source in names.items() if env.get(source)}
    if "LOCAL_WORLD_SIZE" in found:  # "8(x4)"
        found["LOCAL_WORLD_SIZE"] = str(first_number(found["LOCAL_WORLD_SIZE"]) or 1)
    return found


def threads(env):
    """Returns OMP_NUM_THREADS: each worker's share of the CPUs of this task."""
    cpus = len(os.sched_getaffinity(0))
    given = first_number(env.get("SLURM_CPUS_ON_NODE"))
    workers = first_number(env.get("HEADWAY_WORKERS")) or 1
    return {"OMP_NUM_THREADS": str(max(1, min(cpus, given or cpus) // workers))}


def torchrun_log_variables(env):
    """Returns variables that let torchrun log errors only, for jobs of several nodes. Its agents leave their rendezvous
    one after another, and each then warns with sixty lines of C++ frames about the one that hosted it, although the job
    went well."""
    if env.get("HEADWAY_LAUNCHER") != "torchrun" or first_number(env.get("SLURM_JOB_NUM_NODES")) < 2:
        return {}
    return {"TORCH_CPP_LOG_LEVEL": "ERROR", "TORCH_LOGS": "-distributed"}


def first_number(text):
    """Returns the first number in the text, or 0."""
    found = re.search(r"\d+", text or "")
    return int(found[0]) if found else 0


def interpreter(program):
    """Returns the Python in this script's first line; "" if it is not a Python script."""
    path = shutil.which(program)
    try:
        with open(path or program, "rb") as file:
            line = file.readline(300)
    except OSError:
        return ""
    words = line[2:].decode(errors="replace").split() if line.startswith(b"#!/") else []
    if len(words) == 2 and os.path.basename(words[0]) == "env":
        words = [shutil.which(words[1]) or ""]
    return words[0] if len(words) == 1 and "python" in words[0] else ""


# --- a Python of one's own


def torchrun_python(argv):
    """Returns the Python that torchrun runs in; "" if unknown."""
    if RUN_MODULE in argv[:6]:
        return argv[max(0, argv.index(RUN_MODULE) - 2)]
    return interpreter(next((word for word in argv if os.path.basename(word) == "torchrun"), argv[0]))


def with_torchrun(argv):
    """Returns the command, in which a torchrun that a venv lacks is the module of the venv's Python: a venv made with
    --system-site-packages has the system's PyTorch without its programs."""
    for at, word in enumerate(argv[:3]):
        folder, name = os.path.split(word)
        python = os.path.join(folder, "python3")
        if name == "torchrun" and folder and not os.path.exists(word) and os.path.exists(python):
            return [*argv[:at], python, "-m", RUN_MODULE, *argv[at + 1 :]]
    return argv


def venv(argv, env):
    """Returns the variables that activate the venv or conda environment whose program is started by its path; {} for other
    programs. Programs that it starts by name (`accelerate`, `ninja`) are then those of the same environment."""
    program = next((word for word in argv[:3] if os.path.basename(word) == "torchrun"), argv[0])
    if RUN_MODULE in argv[:6]:
        program = torchrun_python(argv)
    folder = os.path.dirname(program)
    root = os.path.dirname(folder)
    for mark, name in (("pyvenv.cfg", "VIRTUAL_ENV"), ("conda-meta", "CONDA_PREFIX")):
        if os.path.isabs(program) and os.path.basename(folder) == "bin" and os.path.exists(os.path.join(root, mark)):
            return {name: root, "PATH": folder + os.pathsep + env.get("PATH", os.defpath)}
    return {}


# --- the network


def network(env, sys_root=SYS, interface=None):
    """Returns the variables for the interface of NCCL and gloo, and for the adapters that NCCL may use on this node."""
    found = {}
    name = interface if interface is not None else socket_interface(env.get("MASTER_ADDR", ""), sys_root)
    if name:
        found["NCCL_SOCKET_IFNAME"] = "=" + name
        found["GLOO_SOCKET_IFNAME"] = name
    found.update(adapters(sys_root))
    return found


def adapters(sys_root=SYS):
    """Returns NCCL's variables for the node's RDMA adapters; {} on plain Ethernet. EFA takes precedence over
    InfiniBand, and that over RoCE."""
    ports = list(active_ports(sys_root))
    if any(port["driver"] == "efa" for port in ports):
        return {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}
    for layer in ("InfiniBand", "Ethernet"):
        mine = [port for port in ports if port["layer"] == layer]
        if mine:
            fastest = max(port["rate"] for port in mine)  # slower ports are for management or storage
            chosen = [port for port in mine if port["rate"] == fastest]
            found = {"NCCL_IB_HCA": "=" + ",".join(f"{port['device']}:{port['port']}" for port in chosen)}
            indexes = {port["gid"] for port in chosen}
            if layer == "Ethernet" and len(indexes) == 1 and None not in indexes:
                found["NCCL_IB_GID_INDEX"] = str(indexes.pop())
            return found
    return {}


def active_ports(sys_root):
    """Yields the active RDMA ports of the node."""
    base = os.path.join(sys_root, "class/infiniband")
    for device in sorted(listed(base), key=natural):
        driver = os.path.basename(os.path.realpath(os.path.join(base, device, "device/driver")))
        for port in sorted(listed(os.path.join(base, device, "ports")), key=natural):
            place = os.path.join(base, device, "ports", port)
            if not read_text(place, "state").endswith("ACTIVE"):
                continue
            yield {
                "device": device,
                "port": port,
                "driver": driver,
                "layer": read_text(place, "link_layer"),
                "rate": first_number(read_text(place, "rate")),
                "gid": roce_index(place),
            }


def roce_index(place):
    """Returns the GID index of the port's RoCE v2 address over IPv4, or None."""
    for index in sorted(listed(os.path.join(place, "gids")), key=natural):
        if read_text(place, "gid_attrs/types", index) == "RoCE v2" and ":0000:ffff:" in read_text(place, "gids", index):
            return int(index)
    return None


def socket_interface(master, sys_root=SYS):
    """Returns the interface with the address from which the first rank is reached; else the best usable one; "" if
    there is none."""
    usable = interfaces(sys_root)
    address = own_address(master)
    for name in socket.if_nameindex() if address else []:
        if name[1] in usable and interface_address(name[1]) == address:
            return name[1]
    return usable[0] if usable else ""


def interfaces(sys_root=SYS):
    """Returns the names of interfaces that carry traffic, best first: bonds, then real devices other than InfiniBand,
    then InfiniBand, then others. Bridges, container interfaces and members of a bond are left out."""
    base = os.path.join(sys_root, "class/net")
    found = []
    for name in listed(base):
        place = os.path.join(base, name)
        if name == "lo" or read_text(place, "operstate") not in ("up", "unknown") or read_text(place, "carrier") == "0":
            continue
        if os.path.exists(os.path.join(place, "master")) or os.path.exists(os.path.join(place, "bridge")):
            continue
        if re.match(r"docker|veth|virbr|cni|podman|tun|tap|wg|flannel|cali", name):
            continue
        bond = os.path.exists(os.path.join(place, "bonding"))
        real = os.path.exists(os.path.join(place, "device"))
        infiniband = read_text(place, "type") == "32"
        found.append((0 if bond else 1 if real and not infiniband else 2 if real else 3, natural(name), name))
    return [name for _, _, name in sorted(found)]


def own_address(master):
    """Returns this node's address towards `master`; "" if it is a loopback address or unknown."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((master, 9))  # a UDP connect sends nothing
            address = probe.getsockname()[0]
    except OSError:
        return ""
    return "" if address.startswith("127.") else address


def interface_address(name):
    """Returns the interface's IPv4 address; "" if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as ask:
        try:
            answer = fcntl.ioctl(ask.fileno(), 0x8915, struct.pack("256s", name.encode()[:15]))  # SIOCGIFADDR
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


# --- CPUs near a GPU


def gpu_cpus(local_rank, env, sys_root=SYS, proc_root=PROC):
    """Returns the set of CPUs near the worker's GPU; empty if that is unknown, or all CPUs are near."""
    visible = [word for word in (env.get("CUDA_VISIBLE_DEVICES") or "").split(",") if word.isdigit()]
    rank = first_number(local_rank) if local_rank else 0
    minors = gpu_addresses(proc_root)
    if not visible or (len(visible) <= rank and len(visible) != 1):
        return set()
    # With Slurm's ConstrainDevices, CUDA's numbers start at 0: number n is the n-th device that this job can open.
    open_minors = [minor for minor in sorted(minors) if os.access(f"/dev/nvidia{minor}", os.R_OK) or proc_root != PROC]
    at = int(visible[rank if len(visible) > 1 else 0])
    if at >= len(open_minors):
        return set()
    near = cpu_list(read_text(sys_root, "bus/pci/devices", minors[open_minors[at]], "local_cpulist"))
    every = cpu_list(read_text(sys_root, "devices/system/cpu/online"))
    return set() if near >= every else near


def gpu_addresses(proc_root=PROC):
    """Returns {device minor: PCI address} from NVIDIA's driver."""
    base = os.path.join(proc_root, "driver/nvidia/gpus")
    found = {}
    for address in listed(base):
        minor = re.search(r"Device Minor:\s*(\d+)", read_text(base, address, "information"))
        if minor:
            found[int(minor[1])] = address.lower()
    return found


def cpu_list(text):
    """Returns the CPUs in a list: "0-3,8" -> {0, 1, 2, 3, 8}."""
    found = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if first.strip().isdigit():
            found.update(range(int(first), int(last or first) + 1))
    return found


def bind_to_cpus(cpus):
    """Binds this process to those of the CPUs that it may use."""
    mine = os.sched_getaffinity(0) & set(cpus)
    if mine:  # never outside the CPUs that Slurm gave to the task
        os.sched_setaffinity(0, mine)


# --- files


def listed(folder):
    """Returns the names in a folder; [] if it can't be read."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def read_text(*parts):
    """Returns the stripped text of a file; "" if it can't be read."""
    try:
        with open(os.path.join(*parts)) as file:
            return file.read().strip()
    except OSError:
        return ""


def natural(name):
    """Returns a sort key that compares digits as numbers."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
