"""Lets fifty people and an operator use a cluster with faults, and measures whether any daemon's memory or open files
grow: `python bench long_runs/day_of_life --minutes 60`.

People submit, cancel and look, by the API and in the dashboard, each with an account and a token of their own; ten keep
the live queue open. The operator scales, writes backups and rolls out new node images. Nodes fail by `headway fault`. It
ends with 1 if a job is lost, a node is drained without a reason, the server answers with an error of its own, a step of
the operator fails, or a daemon grows by more than 5 % from the end of its first ten minutes to the end of the run,
Prometheus by more than the time series of new jobs need. A run of less than thirty minutes need not compare any daemon."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import re
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench_cluster import BenchCluster, bench_cluster
from headway.paths import instance_label
from headway.schemas.access.tokens import TokenIn
from long_runs.chaos_cluster import BREAKS, PATIENCE_S, SPEC, Run, print_evidence
from long_runs.daemon_samples import DaemonSamples

PEOPLE = [f"person{number:02}" for number in range(1, 51)]
WATCHERS = 10  # people who keep the live queue open
PAUSE_S = 15.0  # mean time between two actions of a person
MOST_JOBS = 3  # of a person at a time
SAMPLE_S = 15.0
FAULT_S = 60.0  # mean time between two faults
WARM_UP_S = 600.0
# slurmctld and slurmrestd grow until the first jobs leave slurmctld's memory, by default after ten minutes: after the warm-up.
SHORT_MEMORY = 'slurm: {MinJobAge: "120"}\n'
LEAST_S = 1800.0  # a shorter day says nothing about growth: caches still fill
JOBS = (
    (["--gpus=1"], 5),
    (["--gpus=2"], 20),
    (["--nodes=2", "--gpus-per-node=1", "--ntasks-per-node=1"], 15),
    (["--gpus=1", "--array=1-3"], 8),
)
PAGES = ("", "/queue", "/nodes", "/teams", "/costs", "/storage", "/incidents", "/submit")
# Daemons of the head are not killed: a process that has started again has no memory to compare.
NODE_FAULTS = tuple(one for one in BREAKS if one.on_node and not one.app)


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("--minutes", type=float, default=60)
    words.add_argument("--seed", type=int, default=1)
    arguments = words.parse_args()
    spec = SPEC.replace("[bench]", f"[bench, {', '.join(PEOPLE)}]") + SHORT_MEMORY
    checkout = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory(prefix="headway-day-", dir="/var/tmp") as copy:
        for part in ("src", "node"):
            shutil.copytree(checkout / part, Path(copy, part), ignore=shutil.ignore_patterns("__pycache__"))
        with bench_cluster(spec, Path(copy, "src")) as at:
            at.headway("image", "build", "debian13", timeout_s=3600)
            at.headway("apply", str(at.spec), "--yes")
            day = Day(at, Path(copy), random.Random(arguments.seed), arguments.minutes * 60)
            sys.exit(day.live())


@dataclass
class Day:
    """One run: who uses the cluster, and what was counted. `copy`: the copy of Headway whose node image changes."""

    at: BenchCluster
    copy: Path
    chance: random.Random
    seconds: float
    answers: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    faults_of_server: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")
    operator_failed: list[str] = field(default_factory=list)
    operated: Counter[str] = field(default_factory=Counter)
    jobs: dict[str, list[int]] = field(default_factory=dict)  # person -> job numbers
    cancelled: set[int] = field(default_factory=set)

    def live(self) -> int:
        """Lets the day pass, and returns the exit status."""
        run = Run(self.at, self.chance, NODE_FAULTS)
        server = json.loads(self.at.headway("server", "status", "-o", "json"))
        samples = DaemonSamples(f"headway.instance={instance_label(self.at.state)}", server["pid"])
        tokens = {person: self._token(run, person) for person in PEOPLE}
        self.ends = time.monotonic() + self.seconds
        threads = [
            threading.Thread(target=work, args=arguments, daemon=True)
            for work, arguments in ((self._operate, ()), (self._break_nodes, (run,)), (self._sample, (samples,)))
        ]
        for thread in threads:
            thread.start()
        asyncio.run(self._people(server["url"], tokens))
        for thread in threads:
            thread.join(timeout=900)
            if thread.is_alive():
                self.operator_failed.append("the operator, the faults or the samples did not end within 900 s")
        self._empty_queue(run)
        return self._report(run, samples)

    def _token(self, run: Run, person: str) -> str:
        """Creates the person, and returns a token of theirs."""
        request = TokenIn.model_validate({"person": person, "role": "member"})
        return run.ask(lambda api: api.tokens.create(request)).token or ""

    def _operate(self) -> None:
        """Scales, writes backups, and rolls out node images, in turn."""
        key = self.at.folder / "passphrase"
        key.write_text("a passphrase of the day\n")
        folder = self.at.folder / "backups"
        folder.mkdir()
        versions = itertools.count(1)
        smi = self.copy / "node/image/rootfs/usr/bin/nvidia-smi"
        text = smi.read_text()

        def roll() -> tuple[str, ...]:
            smi.write_text(f"{text}\n# {next(versions)}\n")
            return ("roll", "bench", "--by", "1m", "--yes")

        steps: list[tuple[str, Callable[[], tuple[str, ...]]]] = [
            ("scale up", lambda: ("scale", "bench", "5", "--yes")),
            ("backup", lambda: ("backup", "bench", "--to", str(folder), "--key-file", str(key))),
            ("scale down", lambda: ("scale", "bench", "4", "--yes")),
            ("roll", roll),
        ]
        pause_s = min(240.0, self.seconds / 6)
        for name, argv in itertools.cycle(steps):
            if not self._wait(pause_s):
                return
            ran = self.at.tried(*argv(), timeout_s=1800)
            self.operated[name] += 1
            if ran.returncode:
                self.operator_failed.append(f"{name}: {(ran.stdout + ran.stderr)[-1500:]}")
            print(f"{self.clock()} operator: {name} {'failed' if ran.returncode else 'done'}", flush=True)

    def _break_nodes(self, run: Run) -> None:
        """Makes faults of nodes, one at a time, and plays the technician until the end."""
        next_fault = time.monotonic() + FAULT_S
        while time.monotonic() < self.ends or run.broken:
            open_ = run.tend()
            if next_fault < time.monotonic() < self.ends and open_ < 2 and len(run.whole()) > 2:
                run.break_one()
                next_fault = time.monotonic() + self.chance.expovariate(1 / FAULT_S)
            time.sleep(3)
            if time.monotonic() > self.ends + 900:
                return

    def _sample(self, samples: DaemonSamples) -> None:
        head = self.at.container("bench-head")
        while time.monotonic() < self.ends:
            samples.take(time.time(), head)
            time.sleep(SAMPLE_S)

    def _wait(self, seconds: float) -> bool:
        """Waits, and returns whether the day goes on."""
        time.sleep(max(0.0, min(seconds, self.ends - time.monotonic())))
        return time.monotonic() < self.ends

    def clock(self) -> str:
        """Returns how much of the day has passed: minutes and seconds."""
        passed = self.seconds - max(0.0, self.ends - time.monotonic())
        return f"{int(passed // 60):3d}:{int(passed % 60):02d}"

    async def _people(self, url: str, tokens: dict[str, str]) -> None:
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=100)
        async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as http:
            people = [Person(self, http, person, token) for person, token in tokens.items()]
            work = [one.live() for one in people] + [one.watch() for one in people[:WATCHERS]]
            await asyncio.gather(*work)

    def count(self, answer: httpx.Response, what: str, seconds: float) -> None:
        """Counts an answer; an error of the server is kept with what was asked."""
        self.answers[f"{answer.status_code // 100}xx"] += 1
        self.slowest = max(self.slowest, (seconds, what))
        if 400 <= answer.status_code < 500:
            self.refused[f"{answer.status_code} " + re.sub(r"[0-9]+", "N", f"{what}: {answer.text[:200]}")] += 1
        if answer.status_code >= 500:
            self.faults_of_server.append(f"{self.clock()} {answer.status_code} {what}: {answer.text[:300]}")

    def _empty_queue(self, run: Run) -> None:
        ends = time.monotonic() + PATIENCE_S
        while run.tend() or run.slurm("squeue", "-h").strip() or not self._all_ended(run):
            if time.monotonic() > ends:
                self.operator_failed.append(f"the queue was not empty in time:\n{run.slurm('squeue')}")
                return
            time.sleep(3)

    def _all_ended(self, run: Run) -> bool:
        return all(row[2] not in ("PENDING", "RUNNING", "COMPLETING") for row in self._rows(run))

    def _rows(self, run: Run) -> list[tuple[str, str, str]]:
        """Returns (user, job or task number, last state) of all jobs, from accounting."""
        text = run.slurm("sacct", "-X", "-n", "-P", "-a", "-S", "now-1days", "-o", "User,JobID,State")
        rows = (line.split("|") for line in text.splitlines())
        return [(user, job, state.split()[0]) for user, job, state in rows]

    def _was_cancelled(self, job: str, state: str) -> bool:
        return state == "CANCELLED" and int(job.partition("_")[0]) in self.cancelled

    def _report(self, run: Run, samples: DaemonSamples) -> int:
        """Prints the results and returns the exit status."""
        rows = self._rows(run)
        known = {int(job.partition("_")[0]) for _, job, _ in rows}
        accepted = {job for jobs in self.jobs.values() for job in jobs}
        lost = [
            f"{job} {state}{' (cancelled by its owner)' if int(job.partition('_')[0]) in self.cancelled else ''}"
            for _, job, state in rows
            if state != "COMPLETED" and not self._was_cancelled(job, state)
        ]
        lost += [f"{job} unknown to accounting" for job in sorted(accepted - known)]
        print_evidence(run, sorted({one.split()[0].partition("_")[0] for one in lost}))
        growths = samples.growths(WARM_UP_S, window_s=WARM_UP_S / 3, least_s=self.seconds / 3)
        growing = [one for one in growths if one.memory_grows or one.files_grow]
        wrong = run.wrong_drains()
        missing = self.seconds >= LEAST_S and not growths
        seconds, what = self.slowest
        print(
            f"\n{len(PEOPLE)} people, {self.seconds / 60:.0f} minutes, {sum(self.answers.values())} answers:", end=" "
        )
        print(f"{dict(self.answers)}, slowest {seconds:.1f} s ({what})")
        print(f"jobs: {len(accepted)} accepted, {len(self.cancelled)} cancelled by their owner")
        print(f"lost: {len(lost)} {lost[:20] or ''}")
        print(f"faults: {len(run.made)} {dict(Counter(one.what.name for one in run.made))}")
        print(f"wrong drains: {len(wrong)} {wrong or ''}")
        print(f"operator: {dict(self.operated)}")
        print(f"daemons that lived long enough to be compared: {len(growths)}; growing: {len(growing)}")
        for one in growths[:15]:
            print(f"  {'GROWS ' if one in growing else ''}{one}")
        for text, number in self.refused.most_common(10):
            print(f"refused {number} times: {text}")
        for title, found in (("server", self.faults_of_server), ("operator", self.operator_failed)):
            print(f"failures of the {title}: {len(found)}")
            for text in found[:20]:
                print(f"  {text}")
        return int(bool(lost or wrong or growing or self.faults_of_server or self.operator_failed or missing))


@dataclass
class Person:
    """One person, who acts every fifteen seconds in the mean."""

    day: Day
    http: httpx.AsyncClient
    name: str
    token: str
    cookie: str = ""
    jobs: list[int] = field(default_factory=list)

    async def live(self) -> None:
        """Acts until the day ends."""
        chance = random.Random(self.name)
        await self._sign_in()
        while (left := self.day.ends - time.monotonic()) > 0:
            await asyncio.sleep(min(left, chance.expovariate(1 / PAUSE_S)))
            turn = chance.random()
            if turn < 0.12:
                await self._submit(*chance.choice(JOBS))
            elif turn < 0.15:
                await self._cancel()
            elif turn < 0.55:
                await self._look(chance)
            else:
                await self._ask("GET", f"/clusters/bench{chance.choice(PAGES)}", page=True)

    async def watch(self) -> None:
        """Keeps the live queue open until the day ends."""
        while time.monotonic() < self.day.ends:
            headers = {"Authorization": f"Bearer {self.token}"}
            async with self.http.stream("GET", "/api/v1/clusters/bench/events", headers=headers) as answer:
                self.day.count(answer, "GET events", 0.0)
                if answer.status_code != 200:
                    await asyncio.sleep(5)
                    continue
                async for _ in answer.aiter_bytes():
                    if time.monotonic() > self.day.ends:
                        return

    async def _sign_in(self) -> None:
        form = {"person": self.name, "token": self.token}
        answer = await self._ask("POST", "/signin", data=form, headers={"Origin": str(self.http.base_url).rstrip("/")})
        self.cookie = (answer.headers.get("set-cookie") or "").partition(";")[0]

    async def _submit(self, flags: list[str], seconds: int) -> None:
        answer = await self._ask("GET", "/api/v1/clusters/bench/jobs", params={"user": self.name, "limit": "100"})
        if answer.status_code != 200 or len(answer.json()["jobs"]) >= MOST_JOBS:
            return
        task = f"srun python3 -S -c 'import time; time.sleep({seconds})'; echo done"
        body = {
            "args": ["--mem=64", "--time=30", "--output=/scratch/%u/%A_%a.out", *flags],
            "script": f"#!/bin/bash\n{task}\n",
        }
        answer = await self._ask("POST", "/api/v1/clusters/bench/jobs", json=body)
        if answer.is_success:
            self.jobs.append(answer.json()["job_id"])
            self.day.jobs[self.name] = self.jobs

    async def _cancel(self) -> None:
        if self.jobs:
            job = self.jobs[-1]
            self.day.cancelled.add(job)
            await self._ask("DELETE", f"/api/v1/clusters/bench/jobs/{job}")

    async def _look(self, chance: random.Random) -> None:
        paths = ["/api/v1/clusters/bench", "/api/v1/clusters/bench/jobs?limit=100", "/api/v1/clusters/bench/incidents"]
        if self.jobs:
            job = chance.choice(self.jobs[-5:])
            paths += [f"/api/v1/clusters/bench/jobs/{job}", f"/api/v1/clusters/bench/jobs/{job}/log"]
        await self._ask("GET", chance.choice(paths))

    async def _ask(self, method: str, path: str, page: bool = False, **more: Any) -> httpx.Response:
        """Sends a request with the person's token, as a page with the session cookie, and counts its answer."""
        own = {"Cookie": self.cookie} if page else {"Authorization": f"Bearer {self.token}"}
        headers = {**({} if path == "/signin" else own), **more.pop("headers", {})}
        began = time.monotonic()
        try:
            answer = await self.http.request(method, path, headers=headers, **more)
        except httpx.HTTPError as error:
            self.day.faults_of_server.append(f"{self.day.clock()} {method} {path}: {type(error).__name__}: {error}")
            return httpx.Response(599)
        self.http.cookies.clear()  # the client is everybody's
        self.day.count(answer, f"{method} {path}", time.monotonic() - began)
        return answer


if __name__ == "__main__":
    main()
