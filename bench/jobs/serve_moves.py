"""Counts the requests to a service that fail while its replicas are moved: by drains, new versions, a changed number of
replicas, a cluster with fewer nodes, preemption, a time limit, and a server that is stopped.

    python bench jobs/serve_moves [--requests 100000] [--moves preemption,drain]

The service is examples/serve_echo on a cluster of three nodes. Four threads ask it without pause, half of them on kept
connections. The moves are repeated until so many requests were answered."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_cluster import BenchCluster, bench_cluster

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
from tests.support.request_loop import RequestLoop  # noqa: E402

SPEC = """\
name: bench
plan: h100-8
nodes: {nodes}
partitions:
  train: {{default: true, max_time: "1:00:00", grace_time: 60}}
  urgent: {{tier: 2, preempts: [train], teams: [lab]}}
teams:
  lab: {{users: [bench]}}
"""
SERVICE = """\
name: echo
run: python3 server.py {{port}}
replicas: 2
time: 5
start_s: 30
drain_s: 60
env: {{VERSION: "{version}"}}
"""
PATIENCE_S = 300.0
MOVES = ("drain", "up", "scale", "preemption", "fewer_nodes", "server", "time_limit")


class Moves:
    """The service, and each way in which its replicas are moved."""

    def __init__(self, at: BenchCluster) -> None:
        self.at, self.version = at, 0
        self.folder = Path(shutil.copytree(ROOT / "examples" / "serve_echo", at.folder / "echo"))

    def shown(self) -> Any:
        return json.loads(self.at.headway("serve", "show", "echo", "-o", "json"))

    def wait(self, what: str, ready: Callable[[Any], bool]) -> None:
        """Waits until the service is as wanted. Exits if it does not become so."""
        ends = time.monotonic() + PATIENCE_S
        while not ready(self.shown()):
            if time.monotonic() > ends:
                sys.exit(f"bench: gave up waiting for {what}\n{self.at.headway('serve', 'show', 'echo')}")
            time.sleep(0.5)

    def settled(self, replicas: int, more: Callable[[Any], bool] = lambda _: True) -> Callable[[Any], bool]:
        """Returns whether so many replicas are left, all serve, and each is as wanted."""

        def ready(found: Any) -> bool:
            left = [one for one in found["replicas"] if one["ended_at"] is None]
            return len(left) == replicas and all(one["state"] == "serving" and more(one) for one in left)

        return ready

    def up(self) -> None:
        self.version += 1
        (self.folder / "service.yaml").write_text(SERVICE.format(version=self.version))
        self.at.headway("serve", "up", str(self.folder / "service.yaml"), "--as", "bench")
        self.wait("the new version", self.settled(2, lambda one: one["version"] == self.version))

    def drain(self) -> None:
        node = next(one["node"] for one in self.shown()["replicas"] if one["state"] == "serving")
        self.at.headway("exec", "bench", "--", "scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=bench")
        self.wait("replicas on other nodes", self.settled(2, lambda one: one["node"] != node))
        self.at.headway("exec", "bench", "--", "scontrol", "update", f"NodeName={node}", "State=RESUME")

    def scale(self) -> None:
        for count in (4, 2):
            self.at.headway("serve", "scale", "echo", str(count))
            self.wait(f"{count} replicas", self.settled(count))

    def fewer_nodes(self) -> None:
        for nodes in (1, 3):
            self.at.spec.write_text(SPEC.format(nodes=nodes))
            self.at.headway("apply", str(self.at.folder / "bench.yaml"), "--yes", "--deadline", "01:00:00")
        self.wait("two replicas", self.settled(2))

    def preemption(self) -> None:
        """A job of a higher partition takes the whole node of a replica."""
        node = next(one["node"] for one in self.shown()["replicas"] if one["state"] == "serving")
        words = ("--partition=urgent", f"--nodelist={node}", "--exclusive", "--time=10", "--wrap=sleep 600")
        job = self.at.headway("exec", "bench", "-u", "bench", "--", "sbatch", "--parsable", *words).strip()
        self.wait("replicas on other nodes", self.settled(2, lambda one: one["node"] != node))
        self.at.headway("exec", "bench", "--", "scancel", job)

    def time_limit(self) -> None:
        known = {one["number"] for one in self.shown()["replicas"]}
        self.wait("replicas after the time limit", self.settled(2, lambda one: one["number"] not in known))

    def server(self) -> None:
        self.at.headway("server", "stop")
        time.sleep(3)
        self.at.headway("server", "start")
        self.wait("the server", self.settled(2))


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--requests", type=int, default=100_000)
    words.add_argument("--moves", default=",".join(MOVES), help="the moves, in this order")
    arguments = words.parse_args()
    chosen = arguments.moves.split(",")
    if unknown := set(chosen) - set(MOVES):
        sys.exit(f"bench: no such move: {', '.join(sorted(unknown))}; choose from {', '.join(MOVES)}")
    with bench_cluster(SPEC.format(nodes=3)) as at:
        at.headway("image", "build", "debian13", timeout_s=3600)
        at.headway("apply", str(at.spec), "--yes")
        moves = Moves(at)
        moves.up()
        key, url = at.headway("serve", "key", "create", "echo").strip(), moves.shown()["url"]
        time.sleep(3)  # until the proxy has the key
        with RequestLoop(url, key, "/") as loop:
            while True:
                for move in (getattr(moves, name) for name in chosen):
                    before, began = loop.answers.total(), time.monotonic()
                    move()
                    count = loop.answers.total() - before
                    print(
                        f"{move.__name__}: {count:,} requests in {time.monotonic() - began:.0f} s, {len(loop.failed)} failed"
                    )
                    sys.stdout.flush()
                    if loop.answers.total() >= arguments.requests:
                        break
                else:
                    continue
                break
        print(
            f"{loop.answers.total():,} requests by {len(loop.answers)} replicas, {len(loop.failed)} failed {loop.failed[:3]}"
        )


if __name__ == "__main__":
    main()
