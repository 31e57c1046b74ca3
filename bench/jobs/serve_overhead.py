"""Measures what the proxy of services adds to a request, at 1,000 requests a second on 32 kept connections.

    python bench jobs/serve_overhead [--rate 1000] [--seconds 20]

A replica of examples/serve_echo is asked directly and through the proxy, in turn; requests begin at fixed times, so a late answer
does not delay the next request."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from bench_cluster import bench_cluster

ROOT = Path(__file__).resolve().parents[2]
SPEC = """\
name: bench
plan: h100-8
nodes: 1
teams:
  lab: {users: [bench]}
"""
CONNECTIONS = 32


class Connection:
    """A kept connection."""

    def __init__(self, host: str, port: int, request: bytes) -> None:
        self._host, self._port, self._request = host, port, request
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self) -> bool:
        """Sends the request and reads the answer. Returns whether its status is 200."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, self._port)
        reader, writer = self._streams
        writer.write(self._request)
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        await reader.readexactly(size)
        return head.startswith(b"HTTP/1.1 200")

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def measure(url: str, key: str, rate: int, seconds: float) -> tuple[list[float], int]:
    """Returns the seconds of each request, sorted, and how many failed."""
    parts = urlsplit(url)
    text = f"GET {parts.path or '/'} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n\r\n"
    free: asyncio.Queue[Connection] = asyncio.Queue()
    every = [Connection(str(parts.hostname), int(parts.port or 80), text.encode()) for _ in range(CONNECTIONS)]
    for one in every:
        await one.ask()
        free.put_nowait(one)
    times: list[float] = []
    failed = 0

    async def one_request(due: float) -> None:
        nonlocal failed
        connection = await free.get()
        try:
            failed += not await connection.ask()
        except (OSError, asyncio.IncompleteReadError):
            failed += 1
        times.append(time.perf_counter() - due)
        free.put_nowait(connection)

    began = time.perf_counter()
    tasks = []
    for number in range(int(rate * seconds)):
        due = began + number / rate
        if (left := due - time.perf_counter()) > 0:
            await asyncio.sleep(left)
        tasks.append(asyncio.create_task(one_request(due)))
    await asyncio.gather(*tasks)
    for one in every:
        one.close()
    return sorted(times), failed


def shown(name: str, times: list[float], failed: int) -> tuple[float, float]:
    """Prints the times in ms, and returns p50 and p99."""
    p50, p99 = (times[int(len(times) * share)] * 1000 for share in (0.5, 0.99))
    print(f"{name}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, {failed} of {len(times):,} failed", flush=True)
    return p50, p99


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--rate", type=int, default=1000)
    words.add_argument("--seconds", type=float, default=20)
    words.add_argument("--rounds", type=int, default=3)
    arguments = words.parse_args()
    with bench_cluster(SPEC) as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        folder = Path(shutil.copytree(ROOT / "examples" / "serve_echo", at.folder / "echo"))
        (folder / "service.yaml").write_text("name: echo\nrun: python3 server.py {port}\n")
        at.headway("serve", "up", str(folder / "service.yaml"), "--as", "bench")
        key = at.headway("serve", "key", "create", "echo").strip()
        ends = time.monotonic() + 120
        while not (found := json.loads(at.headway("serve", "show", "echo", "-o", "json")))["healthy"]:
            if time.monotonic() > ends:
                sys.exit("bench: the service does not get healthy")
            time.sleep(1)
        time.sleep(3)  # until the proxy sends requests
        replica = found["replicas"][-1]
        address = at.headway("exec", "bench", "--", "getent", "hosts", replica["node"]).split()[0]
        for _ in range(arguments.rounds):
            direct = shown(
                "direct",
                *asyncio.run(measure(f"http://{address}:{replica['port']}/", key, arguments.rate, arguments.seconds)),
            )
            proxied = shown(
                "through the proxy", *asyncio.run(measure(found["url"] + "/", key, arguments.rate, arguments.seconds))
            )
            print(f"added: p50 {proxied[0] - direct[0]:.2f} ms, p99 {proxied[1] - direct[1]:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
