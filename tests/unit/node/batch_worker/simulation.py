"""Workers of a batch that take turns: a test decides which one does its next operation on the storage, which one dies, and how
late it is. Each worker is a thread that waits for its turn before each operation."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from batch_worker.program import CallFailed
from batch_worker.shared_files import SharedFiles
from batch_worker.worker import FOLDERS, Worker

LEASE_S = 60
BAD_ROW = 4  # its computation always fails
_MOST_TURNS = 20_000


class Death(BaseException):
    """The worker is killed."""


class Storage:
    """The clock of the storage, and when each file was touched."""

    def __init__(self) -> None:
        self.now = 1e9
        self.touched: dict[str, float] = {}


class Turn:
    """Lets a thread wait until the test gives it a turn."""

    def __init__(self) -> None:
        self.go, self.paused = threading.Semaphore(0), threading.Semaphore(0)
        self.killed = self.ended = False

    def wait(self, *_: Any) -> None:
        """Called by the worker before each operation."""
        if threading.current_thread() is threading.main_thread():
            return
        self.paused.release()
        self.go.acquire()
        if self.killed:
            raise Death


class SimulatedFiles(SharedFiles):  # type: ignore[misc]
    """Operations on real files, each of which waits for the worker's turn, with the times of the simulated storage."""

    def __init__(self, folder: str, storage: Storage, turn: Turn) -> None:
        super().__init__(folder)
        self._storage, self._turn = storage, turn

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in (
            "create",
            "replace",
            "touch",
            "expire",
            "age",
            "names",
            "exists",
            "read",
            "remove",
            "rename_folder",
        ):
            super().__getattribute__("_turn").wait()
        return found

    def create(self, path: str, data: bytes) -> bool:
        made = bool(super().create(path, data))
        if made:
            self._storage.touched[path] = self._storage.now
        return made

    def touch(self, path: str) -> None:
        self._storage.touched[path] = self._storage.now

    def expire(self, path: str) -> None:
        self._storage.touched[path] = 0.0

    def age(self, path: str) -> float:
        return self._storage.now - self._storage.touched[path]


class Doubling:
    """Computes rows, and counts how often each was computed."""

    def __init__(self, turn: Turn, counted: Counter[int]) -> None:
        self._turn, self._counted = turn, counted

    def call(self, texts: list[bytes]) -> list[bytes]:
        self._turn.wait()
        rows = [json.loads(text) for text in texts]
        self._counted.update(row["n"] for row in rows)
        if any(row["n"] == BAD_ROW for row in rows):
            raise CallFailed("four")
        return [json.dumps({"n": row["n"], "double": 2 * row["n"]}).encode() for row in rows]


class Player:
    """A worker in its thread."""

    def __init__(self, batch: Batch, owner: str, run: int) -> None:
        self.owner, self.run, self.turn = owner, run, Turn()
        self.fault: BaseException | None = None
        files = SimulatedFiles(str(batch.folder / "tmp"), batch.storage, self.turn)
        caller = Doubling(self.turn, batch.counted)
        self.worker = Worker(
            files, str(batch.folder), batch.settings, caller, owner, str(run), "n1", wait=self.turn.wait
        )
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()
        self.turn.paused.acquire()

    def _work(self) -> None:
        try:
            self.turn.wait()
            self.worker.work()
        except Death:
            pass
        except BaseException as error:
            self.fault = error
        self.turn.ended = True
        self.turn.paused.release()

    def step(self, *, kill: bool = False) -> None:
        """Lets the worker do its next operation, or die before it."""
        self.turn.killed = kill
        self.turn.go.release()
        self.turn.paused.acquire()
        if self.fault:
            raise self.fault

    @property
    def ended(self) -> bool:
        return self.turn.ended


class Batch:
    """A batch of `rows` rows in shards of three."""

    def __init__(self, folder: Path, rows: int = 8) -> None:
        self.folder, self.rows = folder, rows
        self.storage, self.counted = Storage(), Counter[int]()
        for name in FOLDERS:
            (folder / name).mkdir(parents=True)
        (folder / "rows.jsonl").write_text("".join(f'{{"n": {number}}}\n' for number in range(rows)))
        self.settings = {
            "input": str(folder / "rows.jsonl"), "shard_rows": 3, "call_rows": 2, "tries": 2, "lease_s": LEASE_S,
            "about": {"name": "b"},
        }  # fmt: skip
        self.players: list[Player] = []
        self._runs = Counter[str]()

    def start(self, owner: str) -> Player:
        """Starts a worker, or the next run of it."""
        player = Player(self, owner, self._runs[owner])
        self._runs[owner] += 1
        self.players.append(player)
        return player

    def finish(self) -> None:
        """Lets the workers that live take turns until all have ended. Time passes, in which dead workers do not renew leases."""
        for _ in range(_MOST_TURNS):
            living = [player for player in self.players if not player.ended]
            if not living:
                return
            self.storage.now += LEASE_S / 5
            for player in living:
                player.worker.renew()
                player.step()
        raise AssertionError(f"the batch did not end within {_MOST_TURNS} turns")

    def check(self) -> None:
        """Asserts that each row is in the output exactly once, in order, the bad one as an error."""
        results = [json.loads(line) for line in (self.folder / "output" / "part-00000.jsonl").read_text().splitlines()]
        good = [number for number in range(self.rows) if number != BAD_ROW]
        assert results == [{"n": number, "double": 2 * number} for number in good]
        errors = (self.folder / "output" / "errors-00000.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in errors] == [
            {"file": "rows.jsonl", "line": BAD_ROW + 1, "error": "four", "tries": 2}
        ]
        about = json.loads((self.folder / "output" / "batch.json").read_text())
        assert about == {"name": "b", "rows": self.rows, "errors": 1}

    def attempts(self) -> int:
        """Returns the number of attempts on shards."""
        return sum(path.name.split(".")[0].isdigit() for path in (self.folder / "leases").iterdir())

    def kill_all(self) -> None:
        """Ends the threads."""
        for player in self.players:
            while not player.ended:
                player.step(kill=True)
