"""Reads parts of files: job output, as its owner may read it, and the training reports that the agent stores."""

import binascii
import errno
import json
import os
import stat
import sys
import time
from functools import partial

from user_helper import identity

REPORTS = "/var/lib/headway/reports"
POLL_S = 0.1
COUNTED = 64 * 1024 * 1024  # bytes before a part of a log whose line breaks are counted
SEARCH_S = 8
LONGEST = 500  # bytes shown of a line in search results


def follow_log(request):
    """Sends the file as it grows, read as the user, until the parent of this process ends."""
    entry = identity.user_entry(request["user"])
    identity.apply_limits(entry)
    identity.become_user(entry)
    path, offset = request["path"], request["offset"]
    handle, waited = None, False
    parent = os.getppid()
    while os.getppid() == parent:
        if handle is None:
            try:
                handle = open_log(path)
            except OSError as error:
                identity.refuse(f"{path}: {error.strerror}")
        if handle is None:
            if not waited:
                write_frame(b"W")
                waited = True
        else:
            size = os.fstat(handle).st_size
            if size < offset:
                offset = 0
                write_frame(b"T")
            while chunk := os.pread(handle, identity.CHUNK, offset):
                offset += len(chunk)
                write_frame(b"D %d" % len(chunk), chunk)
            if replaced(path, handle):
                os.close(handle)
                handle, offset = None, 0
                write_frame(b"T")
                continue
        time.sleep(POLL_S)


def write_frame(head, body=b""):
    """Writes one frame to standard output."""
    out = sys.stdout.buffer
    out.write(head + b"\n" + body)
    out.flush()


def replaced(path, handle):
    """Returns whether another file has this name now. False if the file was only deleted: its open handle is still read."""
    try:
        now = os.stat(path)
    except OSError:
        return False
    opened = os.fstat(handle)
    return (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino)


def read_log_part(batch):
    """Prints a part of each requested file, read as its user, and of each requested report."""
    for request in batch["files"]:
        if identity.in_child(partial(answer_log_request, request)):
            print(json.dumps({"error": f"no user {request['user']}"}), flush=True)
    for request in batch.get("reports", ()):
        print(json.dumps(read_part({**request, "path": f"{REPORTS}/{int(request['job'])}.jsonl"})), flush=True)


def answer_log_request(request):
    """Becomes the user and prints the part of the file."""
    identity.become_user(identity.user_entry(request["user"]))
    print(json.dumps(read_part(request)), flush=True)


def read_part(request):
    """Returns a part of a file as a JSON object. A negative offset counts from the end. With `count`, `breaks` is the number of
    line breaks before the part, unless it begins after COUNTED bytes."""
    try:
        handle = open_log(request["path"])
    except OSError as error:
        return {"error": error.strerror}
    if handle is None:
        return {"error": "", "missing": True}
    size = os.fstat(handle).st_size
    offset = max(0, size + request["offset"]) if request["offset"] < 0 else request["offset"]
    data, limit = b"", request["limit"]
    while len(data) < limit and (chunk := os.pread(handle, min(identity.CHUNK, limit - len(data)), offset + len(data))):
        data += chunk
    part = {"size": size, "offset": offset, "b64": binascii.b2a_base64(data, newline=False).decode()}
    if request.get("count") and offset <= COUNTED:
        part["breaks"] = count_breaks(handle, offset)
    return part


def count_breaks(handle, end):
    """Returns the number of line breaks in the first `end` bytes of the file."""
    number, at = 0, 0
    while at < end and (chunk := os.pread(handle, min(identity.CHUNK, end - at), at)):
        number += chunk.count(b"\n")
        at += len(chunk)
    return number


def search_log(request):
    """Prints up to `most` lines that contain a text, in upper or lower case, each with its number and offset. Stops after
    SEARCH_S; `looked` is the number of bytes that were searched."""
    entry = identity.user_entry(request["user"])
    identity.apply_limits(entry)
    identity.become_user(entry)
    try:
        handle = open_log(request["path"])
    except OSError as error:
        print(json.dumps({"error": error.strerror}))
        return
    if handle is None:
        print(json.dumps({"error": "", "missing": True}))
        return
    needle, most, until = request["text"].encode().lower(), request["most"], time.monotonic() + SEARCH_S
    found, at, number = [], 0, 0
    with open(handle, "rb") as log:
        while len(found) < most and time.monotonic() < until:
            line = log.readline(identity.CHUNK)  # a very long line is searched in pieces
            if not line:
                break
            number += 1
            if needle in line.lower():
                found.append({"offset": at, "line": number, "text": line[:LONGEST].decode(errors="replace").rstrip()})
            at += len(line)
        size = os.fstat(log.fileno()).st_size
    print(json.dumps({"found": found, "looked": at, "size": size}))


def open_log(path):
    """Opens a regular file and returns its handle; None if the file does not exist. Never blocks on a FIFO. Raises OSError
    for other kinds of files."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a regular file")
    return handle
