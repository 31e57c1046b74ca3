"""Kills two servers on one PostgreSQL again and again with -9 while people submit and scale, and counts at the end
whether every confirmed request was carried out once."""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from headway.sdk.server_address import find_server
from tests.support.clusters.builders import open_to_all
from tests.support.machines.local_head import head_here
from tests.support.servers.server_fakes import document
from tests.support.servers.server_process import ServerProcess
from tests.support.waiting import wait_until

PEOPLE = 3  # at the same time, each with one request after the other
CLUSTERS = ("one", "two")
PATIENCE_S = 120.0
API = "/api/v1/clusters"


SBATCH = """\
#!/bin/sh
cd {folder} || exit 9
for word; do last=$word; done
exec 9>>lock; flock 9
basename "$last" >>submitted
sleep 0.03
echo "Submitted batch job $(wc -l <submitted)"
"""


@dataclass
class Told:
    """The answers that people received."""

    jobs: dict[str, int] = field(default_factory=dict)  # script -> its job
    operations: list[str] = field(default_factory=list)
    resent: int = 0
    faults: list[str] = field(default_factory=list)


class Ordeal:
    """Two servers, the people who use them, and the kills."""

    def __init__(self, folder: Path, url: str, seed: int = 1) -> None:
        self.data = folder / "data"
        self.data.mkdir()
        open_to_all(folder)
        head_here(self.data, SBATCH)
        shared = {"HEADWAY_DATA": str(self.data), "HEADWAY_DATABASE_URL": url}
        self.servers = [
            ServerProcess(folder / name, "tests.support.servers.shared_server", shared) for name in ("a", "b")
        ]
        self.told = Told()
        self.kills = 0
        self._random = random.Random(seed)
        self._numbers = itertools.count(1)
        self._over = threading.Event()
        self._token = ""

    def run(self, seconds: float, least: int, between_s: tuple[float, float], *, back: bool = True) -> None:
        """Runs for at least this time and number of kills, of one server and the other in turn; with `back` each is
        started again."""
        for server in self.servers:
            server.start()
        for server in self.servers:
            server.wait_ready()
        _, self._token, _ = find_server(self.servers[0].state_dir)
        for name in CLUSTERS:
            self._ask(f"{API}/{name}/apply", {"document": document(name).model_dump()})
        people = [threading.Thread(target=self._work, args=(number,)) for number in range(PEOPLE)]
        for person in people:
            person.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end or self.kills < least:
            time.sleep(self._random.uniform(*between_s))
            victim = self.servers[self.kills % 2]
            victim.kill()
            self.kills += 1
            if back:
                victim.start()
                victim.wait_ready()
        time.sleep(between_s[0])
        self._over.set()
        for person in people:
            person.join(PATIENCE_S)
        assert not any(person.is_alive() for person in people), "somebody never got an answer"

    def close(self) -> None:
        self._over.set()
        for server in self.servers:
            server.kill()

    def count(self) -> dict[str, int]:
        """Returns counts. Raises AssertionError if a confirmed request was carried out twice or not at all."""
        told = self.told
        assert told.faults == [], told.faults
        submitted = (self.data / "home" / "submitted").read_text().split()
        assert [name for name, times in Counter(submitted).items() if times != 1] == []
        assert sorted(submitted) == sorted(told.jobs)
        assert {name: number for number, name in enumerate(submitted, 1)} == told.jobs
        assert len(set(told.operations)) == len(told.operations)
        done = wait_until(self._all_done, "all operations to be over", lambda: str(self._operations()), PATIENCE_S)
        assert {one["id"] for one in done} == set(told.operations)
        assert {one["state"] for one in done} == {"done"}
        assert not (self.data / "two-at-once").exists()
        trail = [json.loads(line)["detail"] for line in self._get("/api/v1/audit/export?result=ok").splitlines()]
        assert sorted(one["job"] for one in trail if "job" in one) == sorted(told.jobs.values())
        assert sorted(one["operation"] for one in trail if "operation" in one) == sorted(told.operations)
        return {"kills": self.kills, "jobs": len(told.jobs), "operations": len(done), "sent again": told.resent}

    # --- people

    def _work(self, number: int) -> None:
        choose = random.Random(number)
        try:
            while not self._over.is_set():
                if choose.random() < 0.7:
                    name = f"j{next(self._numbers)}.sbatch"
                    ask = {"script": "#!/bin/sh\ntrue\n", "script_name": name}
                    self.told.jobs[name] = int(self._ask(f"{API}/{CLUSTERS[0]}/jobs", ask)["job_id"])
                else:
                    cluster = choose.choice(CLUSTERS)
                    ask = {"groups": {"": choose.randint(1, 4)}, "confirmed": True}
                    self._ask(f"{API}/{cluster}/scale", ask)
        except Exception as error:
            self.told.faults.append(f"{type(error).__name__}: {error}")

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Sends the request with one idempotency key to either server in turn until one answers."""
        headers = {"authorization": f"Bearer {self._token}", "idempotency-key": os.urandom(8).hex()}
        deadline = time.monotonic() + PATIENCE_S
        for turn in itertools.count(random.randrange(2)):
            assert time.monotonic() < deadline, f"{path} was never answered: {said}"  # noqa: F821
            server = self.servers[turn % 2].answering
            assert server is not None
            try:
                answer = httpx.post(server.url + path, json=body, headers=headers, timeout=60, trust_env=False)
            except httpx.HTTPError as error:
                said = repr(error)
            else:
                if answer.status_code < 300:
                    found: dict[str, Any] = answer.json()
                    if answer.status_code == 202:
                        self.told.operations.append(found["id"])
                    return found
                said = answer.text
                if answer.status_code not in (409, 503):
                    raise AssertionError(f"{path}: {answer.status_code} {said}")
            self.told.resent += 1
            time.sleep(0.1)
        raise AssertionError

    def _get(self, path: str) -> str:
        server = next(one.answering for one in self.servers if one.process is not None and one.process.poll() is None)
        assert server is not None
        headers = {"authorization": f"Bearer {self._token}"}
        answer = httpx.get(server.url + path, headers=headers, timeout=60, trust_env=False)
        assert answer.status_code == 200, answer.text
        return answer.text

    def _operations(self) -> list[dict[str, Any]]:
        return [
            row for name in CLUSTERS for row in json.loads(self._get(f"/api/v1/operations?cluster={name}&limit=1000"))
        ]

    def _all_done(self) -> list[dict[str, Any]]:
        found = self._operations()
        return found if all(one["state"] in ("done", "failed") for one in found) else []
