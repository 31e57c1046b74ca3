"""The committed results of shards, and the output that is made of them.

    objects/SHA256      the results of a shard, or the errors of its rows, under the digest of their content
    done/SHARD          the commit: names the objects of a shard. Created once, exclusively
    output/             the result of the batch: appears by one rename

A worker whose lease expired while it lived computes its shard to the end like its successor; the commit of one of them succeeds,
and the other's objects are removed with the rest when the output exists."""

import hashlib
import json
import os
import shutil

from batch_worker.plan import ERRORS, OUTPUT_RECORD, encode

FILE_BYTES = 256 << 20  # size from which the output continues in another file


class Results:
    """The results of a batch in its folder."""

    def __init__(self, files, folder, plan):
        self._files, self._folder, self._plan = files, folder, plan

    def done(self):
        """Returns the names of the committed shards."""
        return set(self._files.names(os.path.join(self._folder, "done")))

    def commit(self, shard, rows, lines):
        """Commits a shard with the lines of all its rows. Returns False if that was done before."""
        good = [text for kind, text in lines if kind == b"+"]
        bad = [
            self._error_line(shard, number, text)
            for (number, _), (kind, text) in zip(rows, lines, strict=True)
            if kind == b"-"
        ]
        record = {"rows": len(lines), "errors": len(bad), "output": self._keep(good), "failed": self._keep(bad)}
        return self._files.create(os.path.join(self._folder, "done", str(shard)), encode(record))

    def _error_line(self, shard, number, text):
        """Returns where a row without a result is, and why. Its content stays in the input: the output has other readers."""
        path = os.path.relpath(self._plan["files"][self._plan["shards"][shard][0]], self._plan["folder"])
        return encode({"file": path, "line": number, **json.loads(text)})

    def _keep(self, lines):
        """Stores lines under the digest of their content and returns it; "" for none."""
        if not lines:
            return ""
        content = hashlib.sha256()
        for line in lines:
            content.update(line + b"\n")
        digest = content.hexdigest()
        path = os.path.join(self._folder, "objects", digest)
        if not self._files.exists(path):
            self._files.replace(path, (line + b"\n" for line in lines))
        return digest

    def output_exists(self):
        """Returns whether the output is complete."""
        return self._files.exists(os.path.join(self._folder, "output"))

    def make_output(self, about):
        """Makes the output from the commits of all shards. Does nothing if it exists. `about`: the description of the batch that
        the output contains."""
        draft = self._files.temporary()
        os.mkdir(draft)
        try:
            self._fill(draft, about)
            self._files.rename_folder(draft, os.path.join(self._folder, "output"))
        except FileNotFoundError:  # another worker has made the output and removed the objects
            if not self.output_exists():
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)  # of another's output, or of a disk that is full

    def _fill(self, draft, about):
        rows = errors = 0
        output, failed = _Parts(draft, "part-{:05}.jsonl"), _Parts(draft, ERRORS + "{:05}.jsonl")
        for shard in range(len(self._plan["shards"])):
            record = json.loads(self._files.read(os.path.join(self._folder, "done", str(shard))))
            rows, errors = rows + record["rows"], errors + record["errors"]
            for parts, digest in ((output, record["output"]), (failed, record["failed"])):
                if digest:
                    parts.add(os.path.join(self._folder, "objects", digest))
        output.close()
        failed.close()
        with open(os.path.join(draft, OUTPUT_RECORD), "wb") as file:
            file.write(json.dumps({**about, "rows": rows, "errors": errors}, indent=1).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def remove_objects(self, age_s):
        """Removes what the output was made of, and what workers that died left behind `age_s` seconds ago or earlier."""
        self._files.remove_leftovers(age_s)
        for name in ("objects", "parts"):
            folder = os.path.join(self._folder, name)
            for file in self._files.names(folder):
                self._files.remove(os.path.join(folder, file))


class _Parts:
    """Files with the content of objects, one after the other."""

    def __init__(self, folder, name):
        self._folder, self._name = folder, name
        self._count, self._file = 0, None

    def add(self, path):
        if self._file is not None and self._file.tell() >= FILE_BYTES:
            self.close()
        if self._file is None:
            self._file = open(os.path.join(self._folder, self._name.format(self._count)), "wb")  # noqa: SIM115
            self._count += 1
        with open(path, "rb") as data:
            shutil.copyfileobj(data, self._file, 1 << 20)

    def close(self):
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None
