"""Divides the input into shards: ranges of bytes of its files of JSON lines."""

import json
import os

ENDING = ".jsonl"
OUTPUT_RECORD = "batch.json"  # in a folder that is the output of a batch
ERRORS = "errors-"  # begins the names of the files there that have errors instead of results
MOST_SHARDS = 20_000
_CHUNK = 4 << 20


class InputFault(Exception):
    """The input can't be read as rows; the message says why."""


def input_files(path):
    """Returns the files of rows below a folder in order of their names, or the file itself. Files of errors in the output of
    another batch are no rows. Raises InputFault."""
    if os.path.isfile(path):
        return [path]
    found = [
        os.path.join(base, name)
        for base, _, names in os.walk(path)
        for name in names
        if name.endswith(ENDING) and not (OUTPUT_RECORD in names and name.startswith(ERRORS))
    ]
    if not found:
        there = "has no files" if os.path.isdir(path) else "does not exist on this node: it"
        raise InputFault(f"{path} {there} with rows as JSON lines (.jsonl)")
    return sorted(found)


def make_plan(path, shard_rows):
    """Returns the plan: {"folder": of the files, "files": [path], "shards": [[file, start, end, first line, rows]], "rows": sum}.
    A line without content is no row. The same input has the same plan. Raises InputFault."""
    files = input_files(path)
    lines = {name: sum(chunk.count(b"\n") for chunk in _chunks(name)) + 1 for name in files}
    shard_rows = max(shard_rows, -(-sum(lines.values()) // MOST_SHARDS))
    shards = [shard for number, name in enumerate(files) for shard in _file_shards(number, name, shard_rows)]
    rows = sum(shard[4] for shard in shards)
    if not rows:
        raise InputFault(f"{path} has no rows")
    folder = os.path.dirname(path) if os.path.isfile(path) else path
    return {"folder": folder, "files": files, "shards": shards, "rows": rows}


def _chunks(path):
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk


def _file_shards(number, path, shard_rows):
    """Yields the shards of a file. Each ends after `shard_rows` lines or at the end of the file."""
    start = end = first = rows = line = 0
    with open(path, "rb") as file:
        for text in file:
            line += 1
            end += len(text)
            rows += not text.isspace()
            if rows == shard_rows:
                yield [number, start, end, first + 1, rows]
                start, first, rows = end, line, 0
    if rows:
        yield [number, start, end, first + 1, rows]


def read_shard(plan, shard):
    """Returns the rows of a shard as (number of the line in its file, text). Raises InputFault if the input has changed."""
    number, start, end, first, rows = plan["shards"][shard]
    path = plan["files"][number]
    with open(path, "rb") as file:
        file.seek(start)
        data = file.read(end - start)
    found = [(first + place, text) for place, text in enumerate(data.split(b"\n")) if text and not text.isspace()]
    if len(data) != end - start or len(found) != rows:
        raise InputFault(f"{path} has changed since the batch began")
    return found


def encode(value):
    """Returns a value as one line of JSON, in UTF-8 without the line break."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can escape and UTF-8 can't write
        return json.dumps(value, separators=(",", ":")).encode()
