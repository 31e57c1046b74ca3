"""Measures how soon a server answers after its start, its memory when idle, and how many requests it answers.

The comparison is with a bare uvicorn of the same Python that answers one fixed line."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from bench_cluster import BenchCluster, bench_cluster
from headway.sdk.server_address import find_server

RUNS = 5
IDLE_S = 3.0
REQUESTS = 400
BARE = """
import sys, uvicorn
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"[]"})
uvicorn.run(app, port=int(sys.argv[1]), log_level="critical", lifespan="off")
"""


def resident_mb(pid: int) -> float:
    """Returns the resident memory of a process in MB (10^6 bytes)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0


def fetch(url: str, token: str = "") -> bytes:
    """Returns the body of a GET request."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return bytes(answer.read())


def start(at: BenchCluster) -> tuple[float, dict[str, object]]:
    """Returns the seconds from `headway server start` to the first answer, and the server's address, token and pid."""
    began = time.perf_counter()
    at.headway("server", "start")
    url, token, _ = find_server(at.state)
    fetch(f"{url}/api/v1/me", token)
    took = time.perf_counter() - began
    server = json.loads(at.headway("server", "status", "-o", "json"))
    return took, {"url": url, "token": token, "pid": server["pid"]}


def rate(url: str, token: str = "") -> float:
    """Returns the requests a second, sent one after another."""
    fetch(url, token)
    began = time.perf_counter()
    for _ in range(REQUESTS):
        fetch(url, token)
    return REQUESTS / (time.perf_counter() - began)


def bare_rate(port: int) -> float:
    """Returns the requests a second of a bare uvicorn."""
    with subprocess.Popen([sys.executable, "-c", BARE, str(port)]) as process:
        try:
            deadline = time.monotonic() + 20
            while True:
                try:
                    return rate(f"http://127.0.0.1:{port}/")
                except urllib.error.URLError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
        finally:
            process.terminate()


def main() -> None:
    with bench_cluster() as at:
        start(at)  # creates the database
        at.headway("server", "stop")
        ready = []
        for _ in range(RUNS):
            took, server = start(at)
            ready.append(took)
            if len(ready) < RUNS:
                at.headway("server", "stop")
        time.sleep(IDLE_S)
        memory = resident_mb(int(str(server["pid"])))
        ours = rate(f"{server['url']}/api/v1/clusters", str(server["token"]))
    bare = bare_rate(17879)
    print(f"ready after {statistics.median(ready):.2f} s (median of {RUNS}, the command's own time included)")
    print(f"resident when idle: {memory:.0f} MB")
    print(f"list of clusters, with a token: {ours:.0f} requests a second; a bare uvicorn: {bare:.0f}")
    print(f"ratio: {bare / ours:.1f}")


if __name__ == "__main__":
    main()
