"""What the jobs of one user reach of another user's jobs, and outside of the cluster, where the cluster file restricts them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.cluster.identity_provider import SETTINGS, add_person, change_member, identity_provider
from tests.cluster.lab import Lab

SPEC = """\
name: net
provider: local
plan: cpu-64
nodes: 2
network: {job_ports: user}
teams:
  red: {users: [alice], network: {internet: closed}}
  blue: {users: [bob, carol], network: {job_ports: team, internet: [@LIST@]}}
  open: {users: [olga], network: {job_ports: all}}
"""
FIRST, SECOND = "net-1-1", "net-1-2"
PORT = 7000
MPTCP, UDPLITE = 262, 136  # protocols of Linux that are like TCP and UDP
REFUSED, UNREACHABLE, NOT_PERMITTED = "Connection refused", "No route to host", "Operation not permitted"

# Answers TCP on PORT over IPv4 and IPv6, and UDP over IPv4, and closes each connection first.
_SERVE = f"""\
import os, socket, threading

def listening(family, address, port, protocol):
    here = socket.socket(family, socket.SOCK_STREAM, protocol)
    here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        here.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    here.bind((address, port))
    here.listen(100)
    return here

def tcp(here):
    while True:
        peer = here.accept()[0]
        peer.sendall(b"hello")
        peer.close()

def udp(datagrams):
    while True:
        data, peer = datagrams.recvfrom(1000)
        with open("datagrams", "ab") as file:
            file.write(data + b"\\n")
        datagrams.sendto(b"hello", peer)

for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
    for port, protocol in (({PORT}, 0), ({PORT} + 1, {MPTCP})):
        threading.Thread(target=tcp, args=(listening(family, address, port, protocol),)).start()
for protocol in (0, {UDPLITE}):
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, protocol)
    datagrams.bind(("0.0.0.0", {PORT}))
    threading.Thread(target=udp, args=(datagrams,)).start()
open("ready." + os.uname().nodename, "w").close()
"""
# Prints, for each argument ADDRESS[=PORT], what a connection and a datagram to it led to, and after how many seconds.
_KNOCK = f"""\
import json, os, socket, sys, time

def attempt(kind, address, port, protocol=0):
    began = time.monotonic()
    family = socket.getaddrinfo(address, port)[0][0]
    with socket.socket(family, kind, protocol) as there:
        there.settimeout(10 if kind == socket.SOCK_STREAM else 2)
        try:
            there.connect(socket.getaddrinfo(address, port, family)[0][4])
            if kind == socket.SOCK_DGRAM:
                there.send(str(os.getuid()).encode())
            said = there.recv(100).decode()
        except OSError as error:
            said = os.strerror(error.errno) if error.errno else str(error)
    return said, time.monotonic() - began

STREAM, DATAGRAM = socket.SOCK_STREAM, socket.SOCK_DGRAM
for goal in sys.argv[1:]:
    address, _, port = goal.partition("=")
    port = int(port or {PORT})
    tcp, seconds = attempt(STREAM, address, port)
    ways = {{
        "tcp": tcp,
        "mptcp": attempt(STREAM, address, port, {MPTCP})[0],
        "tcp to mptcp": attempt(STREAM, address, port + 1)[0],
        "mptcp to mptcp": attempt(STREAM, address, port + 1, {MPTCP})[0],
        "udp": attempt(DATAGRAM, address, port)[0],
        "udplite": attempt(DATAGRAM, address, port, {UDPLITE})[0],
    }}
    print(json.dumps({{"goal": goal, "seconds": seconds, "ways": ways}}))
"""
# Connects from a fixed port, which a former connection to the same address had too.
_SAME_PORT = f"""\
import socket, sys
with socket.socket() as here:
    here.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    here.bind(("0.0.0.0", 40123))
    try:
        here.connect((sys.argv[1], {PORT}))
        print(here.recv(100).decode(), here.recv(100).decode())
    except OSError as error:
        print(error.strerror)
"""
_ALL_REDUCE = """\
import os, torch, torch.distributed as dist
os.environ.update(RANK=os.environ["SLURM_PROCID"], WORLD_SIZE="2", MASTER_ADDR="net-1-1", MASTER_PORT="29500")
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
print("sum", int(one))
"""


@pytest.fixture(scope="module")
def net(node_image: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("net") / "state", name="net")
    lab.env |= {**SETTINGS, "HEADWAY_OIDC_TEAMS": "reds=red,blues=blue"}
    with lab.applied(SPEC.replace("@LIST@", "192.0.2.0/24")):
        for name, text in (
            ("serve", _SERVE),
            ("knock", _KNOCK),
            ("same_port", _SAME_PORT),
            ("all_reduce", _ALL_REDUCE),
        ):
            lab.head("tee", f"/scratch/{name}.py", stdin=text)
        yield lab


class Jobs:
    """Jobs of a test; they end with it."""

    def __init__(self, net: Lab) -> None:
        self.net, self.running = net, list[int]()

    def start(self, user: str, wrap: str, *flags: str) -> tuple[int, str]:
        """Returns the number of a job that runs, and its folder."""
        folder = self.net.head("mktemp", "-d", "/scratch/job-XXXXXX", user=user).out.strip()
        job = self.net.sbatch(user, f"--chdir={folder}", "--mem=200M", *flags, wrap=f"{wrap}; sleep 900")
        self.running.append(job)
        self.net.wait_job(job, "RUNNING")
        return job, folder

    def serve(self, user: str) -> tuple[int, str]:
        """Starts a job that listens on both nodes."""
        job, folder = self.start(user, "srun python3 /scratch/serve.py", "-N2")
        for node in (FIRST, SECOND):
            self.wait_file(f"{folder}/ready.{node}")
        return job, folder

    def output(self, user: str, command: str, *flags: str) -> str:
        """Returns what a command printed in a job of its own, which goes on."""
        folder = self.start(user, f"({command}) >part 2>&1; mv part out", *flags)[1]
        self.wait_file(f"{folder}/out")
        return self.net.output(f"{folder}/out")

    def knock(self, user: str, node: str, *goals: str) -> dict[str, dict[str, str]]:
        """Returns what attempts in a job on `node` led to, by goal."""
        said = self.output(user, f"python3 /scratch/knock.py {' '.join(goals)}", "-w", node)
        return _by_goal(said)

    def wait_file(self, path: str) -> None:
        self.net.wait(lambda: self.net.head("test", "-e", path, check=False).code == 0, path)

    def end(self) -> None:
        if self.running:
            self.net.head("scancel", *map(str, self.running), check=False)
        for job in self.running:
            self.net.wait_job(job)
        self.net.wait(lambda: not self.net.head("squeue", "-h").out.strip(), "the jobs to end")


def _by_goal(said: str) -> dict[str, dict[str, str]]:
    """Returns {goal: {way: what it led to}}. Refusals must not take long."""
    found = [json.loads(line) for line in said.splitlines()]
    assert all(one["seconds"] < 5 for one in found), found
    return {one["goal"]: one["ways"] for one in found}


@pytest.fixture
def jobs(net: Lab) -> Iterator[Jobs]:
    made = Jobs(net)
    yield made
    made.end()


def _refused(found: dict[str, dict[str, str]]) -> bool:
    return not any("hello" in ways.values() for ways in found.values()) and all(
        (ways["tcp"], ways["mptcp"], ways["udp"]) == (REFUSED, REFUSED, UNREACHABLE) for ways in found.values()
    )


def _reached(found: dict[str, dict[str, str]]) -> bool:
    """Returns whether all got an answer but UDP-Lite, which no user may use: nftables can't assign it to a job."""
    return all([way for way, said in ways.items() if said != "hello"] == ["udplite"] for ways in found.values())


def _nft(net: Lab, node: str, *words: str) -> str:
    return net.podman("exec", net.container(node), "nft", *words)


def test_nodes_of_a_job_reach_each_other(net: Lab, jobs: Jobs) -> None:
    said = jobs.output("alice", "srun python3 /scratch/all_reduce.py", "-N2")
    assert said.splitlines() == ["sum 2", "sum 2"]


def test_user_reaches_only_the_own_jobs(net: Lab, jobs: Jobs) -> None:
    folder = jobs.serve("alice")[1]
    for node, other in ((FIRST, SECOND), (SECOND, FIRST)):
        assert _reached(jobs.knock("alice", node, node, other, "127.0.0.1"))
        assert _refused(jobs.knock("bob", node, node, other, "127.0.0.1"))
    assert jobs.knock("alice", FIRST, "::1")["::1"]["tcp"] == "hello"
    assert jobs.knock("bob", FIRST, "::1")["::1"]["tcp"] == REFUSED
    senders = set(net.output(f"{folder}/datagrams").split())
    assert senders == {net.head("id", "-u", "alice").out.strip()}


def test_users_of_a_team_reach_each_others_jobs(net: Lab, jobs: Jobs) -> None:
    jobs.serve("bob")
    assert _reached(jobs.knock("carol", FIRST, FIRST, SECOND))
    assert _refused(jobs.knock("alice", FIRST, FIRST, SECOND))


def test_everyone_reaches_a_job_that_is_not_restricted(net: Lab, jobs: Jobs) -> None:
    jobs.serve("olga")
    assert _reached(jobs.knock("alice", FIRST, FIRST, SECOND))


def test_login_sessions_reach_only_jobs_of_their_user(net: Lab, jobs: Jobs) -> None:
    jobs.serve("alice")
    knock = ("python3", "/scratch/knock.py", FIRST, SECOND)
    assert _reached(_by_goal(net.head(*knock, user="alice").out))
    assert _refused(_by_goal(net.head(*knock, user="bob").out))
    assert _by_goal(net.head(*knock).out)[FIRST]["tcp"] == "hello", "daemons reach jobs"


def test_link_local_addresses_lead_to_no_job(net: Lab, jobs: Jobs) -> None:
    jobs.serve("alice")
    shown = net.podman("exec", net.container(SECOND), "ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "link")
    goal = f"{shown.split()[3].partition('/')[0]}%eth0"
    assert jobs.knock("bob", FIRST, goal)[goal]["tcp"] == REFUSED


def test_port_of_a_former_connection_gives_no_access(net: Lab, jobs: Jobs) -> None:
    """The former connection is in TIME-WAIT and hides the socket that listens."""
    jobs.serve("alice")
    connect = ("python3", "/scratch/same_port.py", FIRST)
    for user, said in (("bob", REFUSED), ("alice", "hello"), ("bob", REFUSED), ("alice", "hello")):
        assert net.head(*connect, user=user).out.strip() == said, user


def test_slurm_works_in_a_restricted_job(net: Lab, jobs: Jobs) -> None:
    said = jobs.output(
        "alice",
        "srun -N2 --overlap hostname && scontrol ping && sacct -X -n -o JobID -j $SLURM_JOB_ID && squeue -h -o %u"
        " && srun -N1 -n1 --overlap --pty hostname && sbcast /etc/hostname /tmp/name && cat /tmp/name",
        "-N2",
    )
    assert sorted(said.split()).count(FIRST) >= 2
    assert "is UP" in said
    assert "alice" in said
    assert net.head("srun", "-N2", "hostname", user="alice").out.split() in ([FIRST, SECOND], [SECOND, FIRST])


def test_nothing_is_left_of_a_job_that_ended(net: Lab, jobs: Jobs) -> None:
    job = jobs.serve("alice")[0]
    assert f"job_{job}" in _nft(net, FIRST, "list", "table", "inet", "headway_jobs")
    jobs.end()
    for node in (FIRST, SECOND):
        rules = _nft(net, node, "list", "table", "inet", "headway_jobs")
        assert "headway-jobs" not in rules
        assert "chain user_" not in rules
        left = net.podman("exec", net.container(node), "find", "/sys/fs/cgroup", "-name", f"job_{job}", "-type", "d")
        assert left == ""


def _sbatch_possible(net: Lab, user: str, account: str) -> bool:
    """Returns whether Slurm lets the user submit in the team."""
    words = ("sbatch", "--test-only", "-A", account, "--wrap=true")
    return net.head("runuser", "-u", user, "--", *words, check=False).code == 0


def test_user_who_comes_by_scim_is_in_the_rules_without_an_apply(net: Lab, jobs: Jobs) -> None:
    """The nodes of the new user's job reach each other, and a team's jobs answer its members and no former ones."""
    with identity_provider(net) as idp:
        dora = add_person(idp, "dora", "staff", "reds")
        net.wait(lambda: _sbatch_possible(net, "dora", "red"), "dora in red")
        jobs.serve("dora")
        assert _reached(jobs.knock("dora", FIRST, FIRST, SECOND))
        assert _refused(jobs.knock("alice", FIRST, FIRST, SECOND))
        assert _reached(_by_goal(net.head("python3", "/scratch/knock.py", FIRST, SECOND, user="dora").out))
        jobs.end()
        jobs.serve("bob")
        assert _refused(jobs.knock("dora", FIRST, SECOND))
        change_member(idp, "blues", dora, "add")
        net.wait(lambda: _sbatch_possible(net, "dora", "blue"), "dora in blue")
        assert _reached(jobs.knock("dora", FIRST, SECOND))
        change_member(idp, "blues", dora, "remove")
        net.wait(lambda: not _sbatch_possible(net, "dora", "blue"), "dora out of blue")
        assert _refused(jobs.knock("dora", FIRST, SECOND))
    assert "nothing to change" in net.cli("plan", str(net.state / "net.yaml")).out


@pytest.mark.parametrize(
    "command",
    ["systemctl reload headway-job-network", "systemctl restart nftables", "systemctl restart slurmd"],
)
def test_running_job_keeps_its_policy(net: Lab, jobs: Jobs, command: str) -> None:
    jobs.serve("alice")
    net.podman("exec", net.container(SECOND), *command.split())
    assert _refused(jobs.knock("bob", FIRST, SECOND))
    assert _reached(jobs.knock("alice", FIRST, SECOND))


def test_node_without_rules_takes_no_job(net: Lab, jobs: Jobs) -> None:
    """The job starts elsewhere; the node is drained, with a sentence."""
    rules, away = "/etc/headway/job-network.nft", "/etc/headway/away"
    first = net.container(FIRST)
    net.podman("exec", first, "mv", rules, away)
    _nft(net, FIRST, "delete", "table", "inet", "headway_jobs")
    try:
        folder = net.head("mktemp", "-d", "/scratch/job-XXXXXX", user="alice").out.strip()
        job = net.sbatch("alice", f"--chdir={folder}", "--requeue", wrap="hostname")
        jobs.running.append(job)
        net.wait_job(job, "COMPLETED")
        assert net.field(job, "BatchHost") == SECOND
        net.wait(lambda: "drain" in net.head("sinfo", "-h", "-n", FIRST, "-o", "%T").out, "the drain")
        said = ("exec", first, "journalctl", "-o", "cat")
        reason = f"the network policy of job {job} can't be loaded on {FIRST}"
        net.wait(lambda: reason in net.podman(*said), "the sentence in the node's journal")
    finally:
        net.podman("exec", first, "mv", away, rules)
        net.podman("exec", first, "systemctl", "reload", "headway-job-network")
        net.head("scontrol", "update", f"nodename={FIRST}", "state=resume", check=False)


@pytest.fixture
def outside(net: Lab) -> Iterator[str]:
    """ADDRESS=PORT of a server outside of the cluster, on this host: it says hello."""
    address = net.head("sh", "-c", "ip -4 route show default | cut -d' ' -f3").out.strip()
    with socket.create_server((address, 0)) as server:
        port = server.getsockname()[1]

        def answer() -> None:
            while True:
                try:
                    peer = server.accept()[0]
                except OSError:
                    return
                with peer:
                    peer.sendall(b"hello")

        threading.Thread(target=answer, daemon=True).start()
        yield f"{address}={port}"


def test_internet_closed_open_and_listed(net: Lab, jobs: Jobs, outside: str) -> None:
    """After the apply that lists the address, a job that runs keeps its own policy."""
    assert jobs.knock("olga", FIRST, outside)[outside]["tcp"] == "hello"
    for user in ("alice", "bob"):
        ways = jobs.knock(user, FIRST, outside)[outside]
        assert (ways["tcp"], ways["mptcp"]) == (REFUSED, REFUSED), user
        assert ways["udp"] == ways["udplite"] == NOT_PERMITTED, user
    folder = jobs.start(
        "alice", f"while ! [ -e go ]; do sleep 0.2; done; python3 /scratch/knock.py {outside} >part; mv part out"
    )[1]
    jobs.serve("alice")
    file = net.state / "listed.yaml"
    file.write_text(SPEC.replace("@LIST@", outside.partition("=")[0]))
    net.cli("apply", str(file), "--yes")
    assert jobs.knock("bob", FIRST, outside)[outside]["tcp"] == "hello"
    net.head("touch", f"{folder}/go", user="alice")
    jobs.wait_file(f"{folder}/out")
    assert _by_goal(net.output(f"{folder}/out"))[outside]["tcp"] == REFUSED
    assert _refused(jobs.knock("bob", FIRST, SECOND))


def test_ssh_session_in_a_job_has_its_policy(net: Lab, jobs: Jobs, outside: str) -> None:
    jobs.serve("bob")
    said = _by_goal(jobs.output("alice", f"ssh {SECOND} python3 /scratch/knock.py {FIRST} {outside}", "-N2"))
    assert {one["tcp"] for one in said.values()} == {REFUSED}
