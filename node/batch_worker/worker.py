"""Takes shards until all are committed, then makes the output."""

import contextlib
import json
import os
import sys
import threading
import time
import zlib

from batch_worker.leases import Leases
from batch_worker.part_file import PartFile, whole_lines
from batch_worker.plan import encode, make_plan, read_shard
from batch_worker.program import CallEnded, CallFailed
from batch_worker.results import Results

FOLDERS = ("leases", "parts", "objects", "done", "workers", "tmp")
_PLAN, _OUTPUT = "plan", "output"  # keys of leases besides the numbers of shards
_WAIT_S = 1.0  # between two looks while others have all remaining shards


class Worker:
    """A worker of a batch. `settings`: of the batch; `caller`: computes rows (Program, ChatServer); `owner`: its task, `run`:
    this run of the task."""

    def __init__(self, files, folder, settings, caller, owner, run, node, wait=time.sleep):
        self._files, self._folder, self._settings, self._caller = files, folder, settings, caller
        self._owner, self._node, self._wait = owner, node, wait
        self._leases = Leases(files, self._path("leases"), owner, settings["lease_s"])
        self._record_path = self._path("workers", f"{owner}.{run}")
        self._record = {"task": owner, "node": node, "shard": None, "shards": 0, "rows": 0, "errors": 0, "error": ""}
        self._started = time.time()
        self._held = None  # (key, attempt) of the lease
        self._ending = threading.RLock()  # a signal can interrupt `fail`

    def work(self):
        """Works until the output exists. Raises InputFault, and StartFailed if no row can be computed."""
        self._write_record()
        plan = self._plan()
        results = Results(self._files, self._folder, plan)
        while not results.output_exists():
            shard, attempt = self._claim(plan, results)
            if shard is not None:
                self._do_shard(plan, results, shard, attempt)
            elif len(results.done()) == len(plan["shards"]):
                self._once(_OUTPUT, lambda: results.make_output(self._settings["about"]), results.output_exists)
            else:
                self._wait(_WAIT_S)
        results.remove_objects(self._settings["lease_s"])
        self._record["shard"] = None
        self._write_record()

    def renew(self):
        """Renews the lease and the record of this worker. Called by another thread, a few times in the time of a lease."""
        try:
            with self._ending:
                if held := self._held:
                    self._leases.renew(*held)
            self._write_record()
        except OSError as error:  # a later renewal may succeed before the lease expires
            print(f"headway batch: the lease was not renewed: {error}", file=sys.stderr)

    def end(self):
        """Gives the lease back, because the task is about to be ended. It is not renewed after that."""
        with self._ending:
            if held := self._held:
                with contextlib.suppress(OSError):
                    self._leases.give_back(*held)
            self._held = None

    def _plan(self):
        """Returns the plan, which the first worker makes."""
        path = self._path("plan.json")

        def make():
            settings = self._settings
            self._files.create(path, encode(make_plan(settings["input"], settings["shard_rows"])))

        self._once(_PLAN, make, lambda: self._files.exists(path))
        return json.loads(self._files.read(path))

    def _once(self, key, do, is_done):
        """Lets one worker do something, and waits until it is done."""
        while not is_done():
            attempt = self._leases.claim(key, self._leases.attempts().get(key, 0))
            if not attempt:
                self._wait(_WAIT_S)
                continue
            self._held = (key, attempt)
            do()
            self._held = None

    def _claim(self, plan, results):
        """Returns a shard and the number of the attempt, or (None, 0). Each worker begins at another shard."""
        count, done, attempts = len(plan["shards"]), results.done(), self._leases.attempts()
        begin = zlib.crc32(self._owner.encode()) % count
        order = [str(number % count) for number in range(begin, begin + count)]
        # Shards without a lease first: to look at a lease is a request to the storage.
        for key in sorted((key for key in order if key not in done), key=lambda key: key in attempts):
            attempt = self._leases.claim(key, attempts.get(key, 0))
            if attempt:
                self._held = (key, attempt)
                return int(key), attempt
        return None, 0

    def _do_shard(self, plan, results, shard, attempt):
        """Computes the rows of a shard that earlier attempts have not, and commits it."""
        self._record["shard"] = shard
        lines, deaths = self._earlier(shard, attempt)
        if str(shard) in results.done():  # committed after this worker had listed the commits
            self._held = None
            return
        rows = read_shard(plan, shard)
        part = PartFile(self._path("parts", f"{shard}.{attempt}"), lines)
        try:
            if deaths > self._settings["tries"] and len(lines) < len(rows):  # not if they died at the commit
                part.add([_failed(f"the worker ended at this row {deaths} times", deaths)])
            size = self._settings["call_rows"]
            alone_until = (
                len(lines) + size if deaths else 0
            )  # one of the rows that were being computed may be the cause
            while len(part.lines) < len(rows):
                begin = len(part.lines)
                some = rows[begin : begin + (1 if begin < alone_until else size)]
                part.add(self._call([text for _, text in some]))
            committed = results.commit(shard, rows, part.lines)
        finally:
            part.close()
        self._held = None
        if committed:
            self._record["shards"] += 1
            self._record["rows"] += len(rows)
            self._record["errors"] += sum(kind == b"-" for kind, _ in part.lines)
            for number in range(1, attempt + 1):
                self._files.remove(self._path("parts", f"{shard}.{number}"))

    def _earlier(self, shard, attempt):
        """Returns the lines of earlier attempts, and how many workers died in a row at the row that follows."""
        parts = []
        for number in range(1, attempt):
            try:
                parts.append((number, whole_lines(self._files.read(self._path("parts", f"{shard}.{number}")))))
            except FileNotFoundError:
                continue
        lines = max((found for _, found in parts), key=len, default=[])
        deaths = [number for number, found in parts if len(found) == len(lines)]
        return lines, sum(not self._leases.was_given_back(str(shard), number) for number in deaths)

    def _call(self, texts):
        """Returns the lines of rows. A row that fails is tried again, as often as the settings say."""
        given = [_row(text) for text in texts]
        lines = [None if kind == b"+" else (kind, text) for kind, text in given]
        left = [place for place, line in enumerate(lines) if line is None]
        for number in range(1, self._settings["tries"] + 1):
            for place, result in zip(left, self._results([given[place][1] for place in left]), strict=True):
                lines[place] = _failed(str(result), number) if isinstance(result, CallFailed) else (b"+", result)
            left = [place for place in left if lines[place][0] == b"-"]
        return lines

    def _results(self, texts):
        """Returns the result of each row, or CallFailed. If a call fails or ends, its rows without an answer are computed in
        halves."""
        if not texts:
            return []
        try:
            results = self._caller.call(texts)
        except CallFailed as error:
            results = [CallEnded(str(error))] * len(texts)
        left = [place for place, result in enumerate(results) if isinstance(result, CallEnded)]
        if len(texts) > 1:
            half = len(left) // 2
            for places in (left[:half], left[half:]):
                for place, result in zip(places, self._results([texts[place] for place in places]), strict=True):
                    results[place] = result
        return results

    def _write_record(self):
        record = {**self._record, "started": self._started, "seconds": time.time() - self._started}
        self._files.replace(self._record_path, [encode(record)])

    def fail(self, why):
        """Records why this worker ends."""
        self._record["error"] = why[:1000]
        self.end()
        with contextlib.suppress(OSError):
            self._write_record()

    def _path(self, *names):
        return os.path.join(self._folder, *names)


def _failed(why, tries):
    return (b"-", encode({"error": why, "tries": tries}))


def _row(text):
    """Returns a row as JSON that each reader understands, without a byte order mark, or the line of its error."""
    try:
        return (b"+", encode(json.loads(text)))
    except (ValueError, RecursionError) as error:
        return _failed(f"the row is not JSON: {error}", 0)
