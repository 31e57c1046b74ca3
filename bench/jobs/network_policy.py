"""Measures what a network policy costs the connections between two nodes of a job, and the start of a job: the same cluster
with and without `network` in its file, alternately.

Rank 0 of a job listens on the first node, rank 1 on the second connects: one stream of 4 GiB, then connections that are
closed after one byte, then datagrams that are answered one by one. Both nodes are containers on one host without a wire
between them, and the figures count the processor time of rank 1, in which the kernel also delivers what it sends: other
load on this machine changes it little."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace

from bench_cluster import USER, BenchCluster, bench_cluster

ROUNDS = 5
PORT = 7000
OPEN = f"""\
name: bench
plan: cpu-64
nodes: 2
teams:
  lab: {{users: [{USER}]}}
"""
RESTRICTED = f"{OPEN}network: {{job_ports: user, internet: closed}}\n"
PROGRAM = f"""\
import json, os, socket, threading, time

BYTES, CONNECTIONS, DATAGRAMS = 4 << 30, 10_000, 30_000
PART = bytes(1 << 20)
first = os.popen("scontrol show hostnames").read().split()[0]

def serve():
    here, datagrams = socket.create_server(("", {PORT}), backlog=1000), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("", {PORT}))
    threading.Thread(target=answer, args=(datagrams,), daemon=True).start()
    stream, into = here.accept()[0], bytearray(1 << 20)
    while stream.recv_into(into):
        pass
    stream.close()
    for _ in range(CONNECTIONS):
        one = here.accept()[0]
        one.send(b"x")
        one.close()
    here.accept()

def answer(datagrams):
    while True:
        datagrams.sendto(b"x", datagrams.recvfrom(100)[1])

def connect():
    for _ in range(300):
        try:
            return socket.create_connection((first, {PORT}), timeout=60)
        except OSError:
            time.sleep(0.1)

def measure():
    stream = connect()
    began = time.process_time()
    for _ in range(BYTES // len(PART)):
        stream.sendall(PART)
    stream.shutdown(socket.SHUT_WR)
    stream.recv(1)
    figures = {{"gbit": BYTES * 8 / 1e9 / (time.process_time() - began)}}
    began = time.process_time()
    for _ in range(CONNECTIONS):
        with socket.create_connection((first, {PORT})) as one:
            one.recv(1)
    figures["connections"] = CONNECTIONS / (time.process_time() - began)
    there = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    there.connect((first, {PORT}))
    began = time.process_time()
    for _ in range(DATAGRAMS):
        there.send(b"x")
        there.recv(1)
    figures["datagrams"] = DATAGRAMS / (time.process_time() - began)
    connect()
    print(json.dumps(figures))

serve() if os.environ["SLURM_PROCID"] == "0" else measure()
"""
STARTS = 10
# Prints the seconds of a job: prolog, a step that does nothing, epilog.
START = f"""\
import subprocess, time
began = time.perf_counter()
for _ in range({STARTS}):
    subprocess.run(["srun", "--mem=50", "true"], check=True)
print((time.perf_counter() - began) / {STARTS})
"""
WHAT = {
    "gbit": "one stream, Gbit in a second of processor time",
    "connections": "connections in a second of processor time",
    "datagrams": "answered datagrams in a second of processor time",
    "start_s": "a job of one step, seconds",
}


def figures(at: BenchCluster) -> dict[str, float]:
    """Returns the figures of one job, and the time of a job that does nothing."""
    at.headway("apply", str(at.spec), "--yes")
    on_head = ["exec", "bench", "-u", USER, "--", "python3", "-c"]
    step = ["exec", "bench", "-u", USER, "--", "srun", "--nodes=2", "--ntasks-per-node=1", "--mem=500", "python3", "-c"]
    found: dict[str, float] = json.loads(at.headway(*step, PROGRAM))
    return {**found, "start_s": float(at.headway(*on_head, START))}


def main() -> None:
    found: dict[str, dict[str, list[float]]] = {"open": {}, "restricted": {}}
    with bench_cluster() as at:
        sides = [("open", replace(at, text=OPEN)), ("restricted", replace(at, text=RESTRICTED))]
        for _ in range(ROUNDS):
            for name, side in sides:
                for key, value in figures(side).items():
                    found[name].setdefault(key, []).append(value)
            sides.reverse()
    for key, what in WHAT.items():
        pairs = list(zip(found["restricted"][key], found["open"][key], strict=True))
        ratio = statistics.median(one / other for one, other in pairs)
        print(
            f"{what}: {statistics.median(found['restricted'][key]):.3g} restricted,"
            f" {statistics.median(found['open'][key]):.3g} open, ratio {ratio:.2f} (medians of {ROUNDS})"
        )


if __name__ == "__main__":
    main()
