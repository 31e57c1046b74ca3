#!/usr/bin/env python3
"""Started by `headway run --launcher ray` in the batch script: one Ray of all nodes of the job, which ends with the job.

Stored next to a user's bundles and run as the user, on the host or in a container. Needs only the standard library and
Python 3.8 or newer. Ray itself comes from the user's environment or container.

  ray_cluster.py job HELPER [--container-...]  in the batch script: a step with Ray's head and the command on the first node,
                                               a step with Ray on all others; ends with the command's exit code
  ray_cluster.py head HELPER FOLDER            the step on the first node; runs the command when "run" comes on standard input
  ray_cluster.py worker HELPER FOLDER ADDRESS  the step on each other node; prints "ready", ends at the end of its input

HELPER is rank_launcher.py, which sets the network for NCCL and runs the command in HEADWAY_COMMAND. All processes are
in the cgroups of the two steps. `ray stop` and `ray symmetric-run` are never called: they end other Rays of the node."""

import os
import queue
import re
import secrets
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

FIRST_PORT, PORTS = 20000, 12000  # as in rank_launcher.py, whose job starts with the port before these
PORTS_PER_JOB = 7
LOOK_S = 0.05
READY_S = 600.0
STOP_S = 10.0
LOST_NODE_S = 900.0
OLDEST = (2, 52)  # the first Ray with token authentication
STORE_SHARE = 0.3  # Ray's own default for the object store: share of the memory
SMALLEST_STORE = 75 * 2**20  # bytes; Ray refuses less


def main(words):
    """Runs one of the three modes. Returns the exit code."""
    mode, helper, *rest = words
    if mode == "job":
        return run_job(helper, rest, dict(os.environ))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # Slurm's warning, which would end Ray; the command gets it
    if mode == "head":
        return run_head(helper, rest[0], dict(os.environ))
    return run_worker(helper, rest[0], rest[1], dict(os.environ))


def say(text):
    """Writes a sentence to the log of the job."""
    print("headway: " + text, file=sys.stderr, flush=True)


# --- in the batch script


def run_job(helper, container, env):
    """Runs the job's Ray and the command. Returns the command's exit code."""
    nodes = hostnames(env.get("SLURM_JOB_NODELIST", "")) or [os.uname().nodename]
    folder = os.path.join(os.getcwd(), "ray-" + env.get("SLURM_JOB_ID", "0"))
    shutil.rmtree(folder, ignore_errors=True)  # of the run before a requeue
    os.makedirs(folder, mode=0o700)
    write_private(os.path.join(folder, "token"), secrets.token_hex(32))
    program = ["python3", os.path.abspath(__file__)]
    head = start_step(nodes[:1], container, [*program, "head", helper, folder])
    workers = None
    try:
        address = wait_for_file(os.path.join(folder, "address"), head)
        if address and nodes[1:]:
            workers = start_step(nodes[1:], container, [*program, "worker", helper, folder, address], subprocess.PIPE)
        if address and (workers is None or wait_until_ready(head, workers, nodes[1:], folder)):
            tell(head, "run\n")
        else:
            tell(head, "")
        code = head.wait()
    finally:
        if workers is not None:
            end_step(workers)
        remove(os.path.join(folder, "token"))
    return code if code == 0 else end_after_failure(code, len(nodes), env)


def start_step(nodes, container, words, output=None):
    """Starts a step with one task on each of the nodes, which has all that the job has there."""
    step = ["srun", "--overlap", "--mpi=none", "--cpu-bind=none", "--kill-on-bad-exit=0", "--no-kill", "--wait=0"]
    step += [
        f"--nodes={len(nodes)}",
        f"--ntasks={len(nodes)}",
        "--ntasks-per-node=1",
        "--nodelist=" + ",".join(nodes),
    ]
    return subprocess.Popen([*step, *container, *words], stdin=subprocess.PIPE, stdout=output, text=True)


def wait_until_ready(head, workers, nodes, folder):
    """Returns whether Ray runs on all these nodes; says where it does not."""
    missing, told = set(nodes), queue.Queue()
    threading.Thread(target=read_output, args=(workers.stdout, told), daemon=True).start()
    ends = time.monotonic() + READY_S
    while missing and time.monotonic() < ends and head.poll() is None:
        try:
            node = told.get(timeout=1.0)
        except queue.Empty:
            continue
        if not node:  # the step has ended
            break
        missing.discard(node)
    if missing and head.poll() is None:
        say(f"Ray did not start on {', '.join(sorted(missing))}: see {folder}/NODE.log")
    return not missing


def read_output(stream, told):
    """Passes on the nodes that are ready, then ""; prints all other output of the step."""
    for line in stream:
        word, _, node = line.strip().partition(" ")
        if word == "ready":
            told.put(node)
        else:
            print(line, end="", flush=True)
    told.put("")


def tell(step, text):
    """Writes to the step's tasks, and ends their input if there is no text."""
    try:
        step.stdin.write(text)
        step.stdin.flush()
        if not text:
            step.stdin.close()
    except OSError:
        pass  # the step has ended


def end_step(step):
    """Ends a step by the end of its input; its tasks then stop Ray."""
    tell(step, "")
    try:
        step.wait(STOP_S)
    except subprocess.TimeoutExpired:  # a node does not answer
        step.kill()
        step.wait()


def end_after_failure(code, nodes, env):
    """Returns the command's exit code. If the job lost a node, its command did not survive that: the job is requeued."""
    job = env.get("SLURM_JOB_ID", "0")
    if nodes < 2 or nodes_answer(nodes):
        return code
    print(f"--- job {job} lost a node; waiting to be requeued ---", flush=True)
    ends = time.monotonic() + LOST_NODE_S
    while time.monotonic() < ends:
        # The job keeps its other nodes (--no-kill), so Slurm does not requeue it.
        told = subprocess.run(["squeue", "-h", "-j", job, "-o", "%D"], stdout=subprocess.PIPE, text=True, timeout=60)
        if told.stdout.strip().isdigit() and int(told.stdout) < nodes:
            if subprocess.run(["scontrol", "requeue", job], timeout=60).returncode != 0:
                return code
            time.sleep(LOST_NODE_S)
        time.sleep(1)
    return code


def nodes_answer(nodes):
    """Returns whether all nodes of the job run a step."""
    ask = ["srun", "--overlap", "--ntasks-per-node=1", f"--nodes={nodes}", f"--ntasks={nodes}", "true"]
    try:
        return subprocess.run(ask, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def hostnames(nodelist):
    """Returns the nodes of a hostlist, from scontrol."""
    if not nodelist:
        return []
    ran = subprocess.run(["scontrol", "show", "hostnames", nodelist], stdout=subprocess.PIPE, text=True, timeout=30)
    return ran.stdout.split()


# --- on the first node


def run_head(helper, folder, env):
    """Runs Ray's head, and the command when all nodes are ready. Returns the exit code."""
    ray = find_ray(shlex.split(env.get("HEADWAY_COMMAND", "")), env)
    if ray is None:
        return 127
    command = env.pop("HEADWAY_COMMAND", "")  # Ray's processes do not need it
    ports = free_ports(int(env.get("SLURM_JOB_ID", "0")))
    temp = private_folder(env)
    host = own_address(env)
    address, dashboard = f"{host}:{ports['gcs']}", f"http://127.0.0.1:{ports['dashboard']}"
    env.update(ray_variables(folder), AUTOSCALER_METRIC_PORT=str(ports["autoscaler"]),
               DASHBOARD_METRIC_PORT=str(ports["metrics"]))  # fmt: skip
    words = [ray, "start", "--head", f"--port={ports['gcs']}", f"--ray-client-server-port={ports['client']}"]
    words += ["--dashboard-host=127.0.0.1", f"--dashboard-port={ports['dashboard']}", *common_options(host, temp, env)]
    running = start_ray(helper, words, folder, env)
    try:
        while running.poll() is None and not connects(address):
            time.sleep(LOOK_S)
        if running.poll() is None:
            write_private(os.path.join(folder, "address"), address)
        if not wait_until_started(running, temp) or not wait_for_word(running):
            return report_end(running, folder)
        print(f"--- Ray at {address}, dashboard at {dashboard} ---", flush=True)
        env.update(HEADWAY_COMMAND=command, RAY_ADDRESS=address, RAY_API_SERVER_ADDRESS=dashboard)
        program = subprocess.Popen([sys.executable, helper, "task"], env=env, stdin=subprocess.DEVNULL,
                                   preexec_fn=take_signals)  # fmt: skip
        while program.poll() is None:
            if running.poll() is not None:
                end_command(program)
                return report_end(running, folder)
            time.sleep(LOOK_S)
        return program.returncode if program.returncode >= 0 else 128 - program.returncode
    finally:
        end_ray(running, temp)


def wait_for_word(running):
    """Returns whether the command may start: "run" on standard input, before Ray ends."""
    while running.poll() is None:
        if select.select([sys.stdin], [], [], 1.0)[0]:
            return sys.stdin.readline() == "run\n"
    return False


def take_signals():
    """Lets the command have Slurm's warning again."""
    signal.signal(signal.SIGUSR1, signal.SIG_DFL)


def end_command(program):
    """Ends the command, with SIGKILL if it does not end by itself."""
    program.terminate()
    try:
        program.wait(STOP_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def free_ports(job):
    """Returns a free port of this node for each use. Two jobs on one node begin at different ports."""
    found, port = {}, job * PORTS_PER_JOB
    for use in ("gcs", "dashboard", "client", "autoscaler", "metrics"):
        while True:
            port += 1
            if port > job * PORTS_PER_JOB + PORTS:
                raise SystemExit("headway: every port of this node is taken")
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                try:
                    probe.bind(("", FIRST_PORT + port % PORTS))
                except OSError:
                    continue
            found[use] = FIRST_PORT + port % PORTS
            break
    return found


def connects(address):
    """Returns whether a program listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


# --- on each other node


def run_worker(helper, folder, address, env):
    """Runs Ray until the end of standard input. Returns the exit code."""
    ray = find_ray(shlex.split(env.pop("HEADWAY_COMMAND", "")), env)
    if ray is None:
        return 127
    env.update(ray_variables(folder))
    temp = private_folder(env)
    words = [ray, "start", "--address=" + address, *common_options(own_address(env, address), temp, env)]
    running = start_ray(helper, words, folder, env)
    try:
        if not wait_until_started(running, temp):
            return report_end(running, folder)
        print("ready " + node_name(), flush=True)
        while running.poll() is None:
            if select.select([sys.stdin], [], [], 1.0)[0] and not sys.stdin.readline():
                return 0
        return report_end(running, folder)
    finally:
        end_ray(running, temp)


# --- on every node


def node_name():
    """Returns Slurm's name of this node."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def find_ray(command, env):
    """Returns the path of the program ray: next to the command's own Python, else in PATH. Says what to do and returns None
    if there is none, or one that is too old."""
    own = os.path.join(os.path.dirname(command[0]), "ray") if command and os.path.isabs(command[0]) else ""
    ray = own if own and os.path.exists(own) else shutil.which("ray", path=env.get("PATH"))
    where = ("in the container on " if env.get("HEADWAY_CONTAINER") else "on ") + node_name()
    if ray is None:
        say(
            f"there is no ray {where}; name the Python of a venv that has it (headway run --launcher ray --"
            " /scratch/ME/venv/bin/python ...), or use a software environment (--environment) or a container image with Ray"
        )
        return None
    version = ray_version(ray)
    if version and version < OLDEST:
        say(
            f"Ray {dotted(version)} {where} has no token authentication, so other users could run programs as you: install"
            f" ray>={dotted(OLDEST)}"
        )
        return None
    return ray


def dotted(version):
    """Returns (2, 52) as "2.52"."""
    return ".".join(map(str, version))


def ray_version(ray):
    """Returns (major, minor) of the Ray that this program belongs to, or None if unknown."""
    with open(ray, errors="replace") as file:
        first = file.readline().strip()
    python = first[2:].split() if first.startswith("#!") else []
    ask = [*python, "-c", "from importlib.metadata import version; print(version('ray'))"]
    ran = subprocess.run(ask, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) if python else None
    found = re.match(r"(\d+)\.(\d+)", ran.stdout) if ran else None
    return (int(found[1]), int(found[2])) if found else None


def ray_variables(folder):
    """Returns the variables that Ray's processes and the command have in common."""
    found = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": os.path.join(folder, "token")}
    if "RAY_USAGE_STATS_ENABLED" not in os.environ:
        found["RAY_USAGE_STATS_ENABLED"] = "0"
    return found


def private_folder(env):
    """Returns an empty folder of this job for Ray's files and sockets. Its path is short, because Linux takes at most 107
    bytes for that of a socket, and Ray adds about 65."""
    name = f"ray-{env.get('SLURM_JOB_ID', '0')}-{env.get('SLURM_RESTART_COUNT', '0')}"
    path = os.path.join(env.get("HEADWAY_SCRATCH", "/tmp"), name)
    shutil.rmtree(path, ignore_errors=True)
    os.mkdir(path, 0o700)  # fails if another user has made one
    return path


def common_options(host, temp, env):
    """Returns the options of `ray start` for this node: its share of the job, and ports that Ray chooses."""
    cpus = min(first_number(env.get("SLURM_CPUS_ON_NODE")) or 1, len(os.sched_getaffinity(0)))
    words = ["--block", "--node-ip-address=" + host, "--temp-dir=" + temp, f"--num-cpus={cpus}"]
    words += [f"--num-gpus={first_number(env.get('SLURM_GPUS_ON_NODE'))}"]
    words += ["--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"]
    memory = memory_limit()
    if memory:
        store = max(SMALLEST_STORE, min(int(memory * STORE_SHARE), shared_memory()))
        words += [f"--object-store-memory={store}", f"--memory={max(memory - store, SMALLEST_STORE)}"]
    return words


def memory_limit(root="/sys/fs/cgroup", own="/proc/self/cgroup"):
    """Returns the memory that this step may use in bytes, from its cgroup; 0 if it has no limit."""
    lowest = 0
    for line in read_text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            stat = read_text(os.path.join(root, "memory" + path, "memory.stat"))
            found = re.search(r"hierarchical_memory_limit (\d+)", stat)
            lowest = int(found[1]) if found else 0
        while controllers == "" and path not in ("/", ""):
            limit = read_text(os.path.join(root + path, "memory.max")).strip()
            lowest = min(lowest or int(limit), int(limit)) if limit.isdigit() else lowest
            path = os.path.dirname(path)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return lowest if lowest < total else 0


def shared_memory(path="/dev/shm"):
    """Returns the free bytes of /dev/shm, less a tenth."""
    found = os.statvfs(path)
    return int(found.f_bavail * found.f_frsize * 0.9)


def own_address(env, other=""):
    """Returns this node's address towards another node of the job."""
    nodes = hostnames(env.get("SLURM_JOB_NODELIST", "")) if not other else []
    target = other.rpartition(":")[0] or (nodes[1] if len(nodes) > 1 else os.uname().nodename)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((target, 9))  # a UDP connect sends nothing
        return probe.getsockname()[0]


def start_ray(helper, words, folder, env):
    """Starts Ray; its output goes to NODE.log in the folder."""
    with open(os.path.join(folder, node_name() + ".log"), "a") as log:
        return subprocess.Popen([sys.executable, helper, "task", "--", *words], env=env, stdin=subprocess.DEVNULL,
                                stdout=log, stderr=log)  # fmt: skip


def wait_until_started(running, temp):
    """Returns whether `ray start` has started all of its processes; it writes this file last."""
    while running.poll() is None:
        if os.path.exists(os.path.join(temp, "ray_current_cluster")):
            return True
        time.sleep(LOOK_S)
    return False


def report_end(running, folder):
    """Says that Ray has ended, with the end of its output. Returns the exit code."""
    if running.poll() is None:  # it was told to end
        return 1
    node = node_name()
    path = os.path.join(folder, node + ".log")
    say(f"Ray on {node} ended with status {running.returncode}; the end of {path}:")
    print("".join("  " + line + "\n" for line in read_text(path).splitlines()[-20:]), file=sys.stderr, flush=True)
    return 1


def end_ray(running, temp):
    """Ends Ray on this node. It holds nothing that must be saved, and the kernel ends the processes that it started."""
    running.kill()
    running.wait()
    shutil.rmtree(temp, ignore_errors=True)


# --- files and numbers


def wait_for_file(path, process):
    """Returns the file's text as soon as it is there; "" if the process ends before."""
    while not os.path.exists(path):
        if process.poll() is not None:
            return ""
        time.sleep(LOOK_S)
    return read_text(path)


def write_private(path, text):
    """Writes a file that only its owner can read, under its name when it is complete."""
    with open(os.open(path + ".new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    os.rename(path + ".new", path)


def remove(path):
    """Removes a file, if it is there."""
    try:
        os.remove(path)
    except OSError:
        pass


def read_text(path):
    """Returns the text of a file; "" if it can't be read."""
    try:
        with open(path, errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def first_number(text):
    """Returns the first number in the text, or 0."""
    found = re.search(r"\d+", text or "")
    return int(found[0]) if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
