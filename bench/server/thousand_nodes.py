"""Measures the API and the pages over a cluster of 1,000 real slurmd with 10,000 jobs, while 50 users look.

Every figure is taken by a client on the same machine, which takes CPU time from the server that it measures, as do
slurmctld, the thousand slurmd and the poller.

list      a page of 100 jobs, requested every VIEWER_S seconds by each of VIEWERS users, who also have the queue page's
stream open.
          Ten different requests: filters, searches, sort orders, later pages.
rate      the same page over 8 connections that send the next request as soon as they have the answer, with a token. on
screen from the moment when sbatch or scancel has returned on the head until the queue page's stream shows it; and on an
          ordinary node, from a job's first and last line to the events of its beginning and its end.
pages     each page with all its files as a browser fetches it the first time, compressed.

The comparison is with squeue on the head, which is what each look costs without Headway."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import random
import re
import statistics
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench_cluster import BenchCluster, bench_cluster
from headway.sdk.server_address import find_server

NODES, JOBS, VIEWERS, VIEWER_S = 1000, 10_000, 50, 2.0
PATIENCE_S = 90.0
LIST_OVER_S, RATE_OVER_S, CONNECTIONS, TRIALS = 30.0, 10.0, 8, 5
USERS = ("u1", "u2", "u3", "u4")
SPEC = f"""\
name: bench
plan: h100-8
nodes: 1
teams:
  lab: {{users: [{", ".join(USERS)}]}}
"""
THOUSAND = Path(__file__).with_name("thousand_nodes.sh")
LIST = "/api/v1/clusters/bench/jobs?limit=100"
QUESTIONS = (
    LIST, f"{LIST}&sort=jobid", f"{LIST}&sort=-priority", f"{LIST}&user=u1", f"{LIST}&user=u2", f"{LIST}&q=train-7",
    f"{LIST}&state=PENDING", f"{LIST}&state=RUNNING", f"{LIST}&team=lab&sort=name", f"{LIST}&partition=main&sort=timelimit",
)  # fmt: skip
PAGES = (
    "/", "/new", "/clusters/bench", "/clusters/bench/queue", "/clusters/bench/nodes", "/clusters/bench/submit",
    "/clusters/bench/notebooks", "/clusters/bench/teams", "/clusters/bench/incidents", "/tokens", "/people", "/audit",
)  # fmt: skip
WATCHED = "watched"


@dataclass
class Server:
    """Address and token of the server."""

    url: str
    token: str

    def request(self, path: str) -> bytes:
        """Returns the bytes of a GET request."""
        place = urlsplit(self.url)
        return (
            f"GET {path} HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {self.token}\r\n"
            "Accept-Encoding: gzip\r\n\r\n"
        ).encode()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        place = urlsplit(self.url)
        return await asyncio.open_connection(place.hostname, place.port, limit=2**24)


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Reads one answer and returns (bytes of header and body, the body)."""
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        sys.exit(f"bench: {head.decode(errors='replace')}")
    found = re.search(rb"content-length: (\d+)", head.lower())
    assert found is not None, head
    body = await reader.readexactly(int(found[1]))
    return len(head) + len(body), body


async def get(server: Server, path: str) -> tuple[int, bytes]:
    """Sends one request on a connection of its own and returns (bytes of header and body, the uncompressed body)."""
    import gzip

    reader, writer = await server.connect()
    writer.write(server.request(path))
    size, body = await asyncio.wait_for(answer(reader), 60)
    writer.close()
    return size, gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


async def stream(server: Server, path: str) -> AsyncIterator[tuple[float, str, str]]:
    """Yields (Unix time, event, data) of an event stream as the events arrive."""
    reader, writer = await server.connect()
    writer.write(server.request(path))
    await reader.readuntil(b"\r\n\r\n")
    event, data = "", []
    try:
        while True:
            line = (await reader.readline()).decode().rstrip("\r\n")
            word, _, rest = line.partition(": ")
            if word == "event":
                event = rest
            elif word == "data":
                data.append(rest)
            elif not line and (event or data):
                yield time.time(), event, "\n".join(data)
                event, data = "", []
            if reader.at_eof():
                return
    finally:
        writer.close()


def figures(took: list[float]) -> str:
    """Returns median, p99 and maximum as text. `took`: seconds."""
    took = sorted(took)
    middle, late = statistics.median(took), took[min(len(took) - 1, int(len(took) * 0.99))]
    return f"median {middle * 1000:.0f} ms, p99 {late * 1000:.0f} ms, longest {took[-1] * 1000:.0f} ms"


# --- viewers


async def look(server: Server, path: str) -> None:
    """Reads a stream and drops its content: real browsers would use CPUs of their own."""
    reader, writer = await server.connect()
    try:
        writer.write(server.request(path))
        while await reader.read(2**16):
            pass
    finally:
        writer.close()


async def person(server: Server, number: int, ends: float, took: list[float]) -> None:
    """Sends a request every VIEWER_S seconds, after a random delay, and appends the seconds of each to `took`."""
    reader, writer = await server.connect()
    await asyncio.sleep(random.random() * VIEWER_S)
    while time.perf_counter() < ends:
        began = time.perf_counter()
        writer.write(server.request(QUESTIONS[number % len(QUESTIONS)]))
        await answer(reader)
        took.append(time.perf_counter() - began)
        number += 1
        await asyncio.sleep(max(0.0, VIEWER_S - (time.perf_counter() - began)))
    writer.close()


async def listed(server: Server) -> list[float]:
    """Returns the seconds of each request of all viewers."""
    took: list[float] = []
    ends = time.perf_counter() + LIST_OVER_S
    await asyncio.gather(*(person(server, number, ends, took) for number in range(VIEWERS)))
    return took


async def rate(server: Server) -> tuple[float, list[float]]:
    """Returns (requests a second, seconds of each request) over CONNECTIONS connections."""
    took: list[float] = []
    ends = time.perf_counter() + RATE_OVER_S

    async def one() -> None:
        reader, writer = await server.connect()
        while (began := time.perf_counter()) < ends:
            writer.write(server.request(LIST))
            await answer(reader)
            took.append(time.perf_counter() - began)
        writer.close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return len(took) / RATE_OVER_S, took


# --- on screen


async def run(at: BenchCluster, user: str, script: str) -> str:
    """Runs a script on the head as the user, and returns its output."""
    return await asyncio.to_thread(at.headway, "exec", "bench", "-u", user, "--", "bash", "-c", script)


async def until(events: AsyncIterator[tuple[float, str, str]], what: str, *words: str, lacks: str = "") -> float:
    """Returns when the event `what` came whose data has all of `words` and not `lacks`. Exits after PATIENCE_S, and
    prints the events that came instead."""
    seen: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await _found(events, seen, what, words, lacks)
    except TimeoutError:
        sys.exit("\n".join([f"bench: no {what} with {words} but without {lacks!r} came, but:", *seen[-20:]]))


async def _found(
    events: AsyncIterator[tuple[float, str, str]], seen: list[str], what: str, words: tuple[str, ...], lacks: str
) -> float:
    async for came, event, data in events:
        seen.append(f"{event} {data[:200]}")
        if event == what and all(word in data for word in words) and (not lacks or lacks not in data):
            return came
    sys.exit("bench: the stream ended")


async def on_screen(at: BenchCluster, server: Server) -> list[float]:
    """Returns the seconds from Slurm's answer to the queue page, for jobs that are submitted and cancelled."""
    took = []
    for number in range(TRIALS):
        name = f"{WATCHED}-{number}"
        events = stream(server, f"/clusters/bench/queue/live?q={name}")
        await until(events, "rows")
        said = run(at, USERS[0], f"cd /tmp; sbatch --parsable -J {name} -N4 --gpus-per-node=8 --wrap true; date +%s.%N")
        came, told = await asyncio.gather(until(events, "rows", name), said)
        job, knew = told.split()
        took.append(came - float(knew))
        gone = run(at, USERS[0], f"scancel {job}; date +%s.%N")
        came, told = await asyncio.gather(until(events, "rows", lacks=f"job-{job}"), gone)
        took.append(came - float(told))
        await events.aclose()  # type: ignore[attr-defined]
    return took


async def turns(at: BenchCluster, server: Server) -> list[float]:
    """Returns the seconds from a job's first and last line on a node to its events."""
    await ready(server, 0)  # the server's first reading makes no events
    took = []
    script = "date +%s.%N >begin; sleep 5; date +%s.%N >end"
    for _ in range(TRIALS):
        events = stream(server, "/api/v1/clusters/bench/events")
        await until(events, "ready")
        job = (await run(at, USERS[0], f"cd; sbatch --parsable --gpus=1 --output=/dev/null --wrap '{script}'")).strip()
        name = f'"name":"{job}"'
        begun = await until(events, "job", name, '"state":"RUNNING"')
        ended = await until(events, "job", name, '"state":"COMPLETED"')
        began, end = (await run(at, USERS[0], "cd; cat begin end")).split()
        took += [begun - float(began), ended - float(end)]
        await events.aclose()  # type: ignore[attr-defined]
    return took


# --- pages


async def page_sizes(server: Server) -> dict[str, int]:
    """Returns the bytes over the wire of each page with its files, headers included."""
    known: dict[str, int] = {}
    found = {}
    for path in PAGES:
        total, body = await get(server, path)
        for file in sorted(set(re.findall(r'(?:src|href)="(/static/[^"]+)"', body.decode()))):
            if file not in known:
                known[file], _ = await get(server, file)
            total += known[file]
        found[path] = total
    return found


async def ready(server: Server, jobs: int) -> float:
    """Waits until the list has all jobs, and returns the seconds between two readings."""
    deadline = time.monotonic() + 120
    seen: list[float] = []
    while time.monotonic() < deadline and len(seen) < 5:
        page = json.loads((await get(server, LIST))[1])
        if page["total"] >= jobs and page["as_of"] not in seen:
            seen.append(page["as_of"])
        await asyncio.sleep(0.2)
    if len(seen) < 5:
        sys.exit(f"bench: the list has {page['total']} jobs after two minutes; stale: {page['stale']!r}")
    return statistics.median(b - a for a, b in itertools.pairwise(seen))


async def measure(at: BenchCluster, server: Server, nodes: int, jobs: int) -> None:
    """Runs all measurements and prints them."""
    print(f"a job's begin and end on a node, until its event is there: {figures(await turns(at, server))}", flush=True)
    argv = ["bash", "-c", THOUSAND.read_text(), "thousand", str(nodes), str(jobs), *USERS]
    print(at.headway("exec", "bench", "-u", "root", "--", *argv, timeout_s=1200).strip(), flush=True)
    apart = await ready(server, jobs)
    began = time.perf_counter()
    await run(at, "root", "squeue -h >/tmp/squeue; wc -l </tmp/squeue")
    squeue = time.perf_counter() - began
    many, took = await rate(server)
    print(f"rate: {many:.0f} lists of 100 a second by {CONNECTIONS} connections; {figures(took)}", flush=True)
    looking = [asyncio.create_task(look(server, "/clusters/bench/queue/live")) for _ in range(VIEWERS)]
    await asyncio.sleep(3)
    took = await listed(server)
    print(f"list of 100 of {jobs} jobs on {nodes} slurmd, {VIEWERS} viewers: {figures(took)} ({len(took)} asked)")
    screen = await on_screen(at, server)
    print(f"on screen after Slurm knows, {VIEWERS} viewers: {figures(screen)}", flush=True)
    for task in looking:
        task.cancel()
    sizes = await page_sizes(server)
    for path, size in sizes.items():
        print(f"page {path}: {size / 1000:.0f} kB")
    print(f"largest page: {max(sizes.values()) / 1000:.0f} kB over the wire, nothing kept from before")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    print(f"conditions: {os.cpu_count()} cores, {memory:.0f} GiB, the load generator on the same; a page has 100 jobs; "
          f"a reading every {apart:.1f} s; each viewer asks every {VIEWER_S:g} s")  # fmt: skip
    late = sorted(took)[int(len(took) * 0.99)]
    print(f"ratio: {squeue / late:.1f} (squeue on the head, by headway exec: {squeue * 1000:.0f} ms, over the p99)")


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--nodes", type=int, default=NODES)
    asked.add_argument("--jobs", type=int, default=JOBS)
    words = asked.parse_args()
    with bench_cluster(SPEC) as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        url, token, _ = find_server(at.state)
        asyncio.run(measure(at, Server(url, token), words.nodes, words.jobs))


if __name__ == "__main__":
    main()
