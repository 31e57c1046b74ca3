"""Runs one thing as a person on the head: a command, sbatch with a script, or reading a job's log.

Sent as the program text of `python3 -c`, with one JSON argument; runs as root and gives up root for good before it
touches anything of the person's. Only the standard library, Python 3.9 or newer.

  {"do": "exec",   "user": ..., "argv": [...], "cwd": ""}          becomes the command; its output and code are its own
  {"do": "sbatch", "user": ..., "args": [...], "cwd": "", "script_name": ..., "script_args": [...], "has_script": true}
                    standard input is the script
  {"do": "follow", "user": ..., "path": ..., "offset": 0}           frames on standard output until it is ended:
                    "D <n>\n" + n bytes, "T\n" when the file was cut short or replaced, "W\n" while there is none
  {"do": "read",   "files": [{"user", "path", "offset", "limit"}]}  one JSON line a file: {"size", "b64"} or {"error"}
Ends with 97 and one sentence on standard error when the person or the folder can't be used.
"""

import base64
import json
import os
import pwd
import shutil
import stat
import sys
import tempfile
import time

REFUSED = 97
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
POLL_S = 0.1
CHUNK = 256 * 1024


def refuse(sentence):
    sys.stderr.write(sentence + "\n")
    sys.stderr.flush()
    os._exit(REFUSED)


def person(name):
    """The passwd entry of somebody who may work here."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        refuse(f"there is no user {name} on {os.uname().nodename}")
    if entry.pw_uid == 0:
        refuse("nothing is done as root here")
    return entry


def become(entry):
    """Gives up root for good; the environment is what a login gives, and nothing of ours."""
    os.initgroups(entry.pw_name, entry.pw_gid)
    os.setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid)
    os.setresuid(entry.pw_uid, entry.pw_uid, entry.pw_uid)
    os.umask(0o022)
    os.environ.clear()
    os.environ.update(
        HOME=entry.pw_dir,
        USER=entry.pw_name,
        LOGNAME=entry.pw_name,
        SHELL=entry.pw_shell or "/bin/sh",
        PATH=PATH,
        LANG="C.UTF-8",
    )


def enter(entry, cwd):
    """`cwd` against the home folder; the home itself when it is empty."""
    place = os.path.join(entry.pw_dir, cwd)
    try:
        os.chdir(place)
    except OSError as error:
        refuse(f"{os.uname().nodename}: {place} can't be used by {entry.pw_name}: {error.strerror}")
    os.environ["PWD"] = place


def as_login(argv):
    """The same through a login shell, so that /etc/profile (modules) has been read; words stay words."""
    return ["/bin/bash", "--login", "-c", 'exec "$@"', "headway", *argv]


def exec_(ask):
    entry = person(ask["user"])
    become(entry)
    enter(entry, ask["cwd"])
    sys.stdout.flush()
    os.execv("/bin/bash", as_login(ask["argv"]))


def sbatch(ask):
    """The script gets its own name in a folder only the person can read: sbatch names the job after it. slurmctld
    has its own copy once sbatch has ended, so the folder goes."""
    entry = person(ask["user"])
    if entry.pw_shell.endswith(("nologin", "false")):
        refuse(f"{entry.pw_name} may not work on this cluster any more")
    text = sys.stdin.buffer.read() if ask["has_script"] else b""
    folder = ""
    if ask["has_script"]:
        folder = tempfile.mkdtemp(prefix="headway-")
        os.chown(folder, entry.pw_uid, entry.pw_gid)
    child = os.fork()
    if child == 0:
        become(entry)
        enter(entry, ask["cwd"])
        words = ["sbatch", *ask["args"]]
        if folder:
            path = os.path.join(folder, ask["script_name"])
            with open(path, "xb") as file:
                file.write(text)
            os.chmod(path, 0o700)
            words += [path, *ask["script_args"]]
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.execv("/bin/bash", as_login(words))
    _, status = os.waitpid(child, 0)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(os.waitstatus_to_exitcode(status) & 255)


def open_log(path):
    """A regular file or None; a FIFO never makes us wait."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        refuse(f"{path} is not a plain file")
    return handle


def send(head, body=b""):
    out = sys.stdout.buffer
    out.write(head + b"\n" + body)
    out.flush()


def follow(ask):
    become(person(ask["user"]))
    path, offset = ask["path"], ask["offset"]
    handle, waited = None, False
    parent = os.getppid()
    while os.getppid() == parent:
        if handle is None:
            try:
                handle = open_log(path)
            except OSError as error:
                refuse(f"{path}: {error.strerror}")
        if handle is None:
            if not waited:
                send(b"W")
                waited = True
        else:
            size = os.fstat(handle).st_size
            if size < offset:
                offset = 0
                send(b"T")
            while chunk := os.pread(handle, CHUNK, offset):
                offset += len(chunk)
                send(b"D %d" % len(chunk), chunk)
            if replaced(path, handle):
                os.close(handle)
                handle, offset = None, 0
                send(b"T")
                continue
        time.sleep(POLL_S)


def replaced(path, handle):
    """Another file has this name now; none at all is no reason to let go."""
    try:
        now = os.stat(path)
    except OSError:
        return False
    held = os.fstat(handle)
    return (now.st_dev, now.st_ino) != (held.st_dev, held.st_ino)


def read(ask):
    for one in ask["files"]:
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                become(person(one["user"]))
                print(json.dumps(read_part(one)), flush=True)
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps({"error": f"no user {one['user']}"}), flush=True)


def read_part(one):
    """A negative offset counts from the end."""
    try:
        handle = open_log(one["path"])
    except OSError as error:
        return {"error": error.strerror}
    if handle is None:
        return {"error": "", "missing": True}
    size = os.fstat(handle).st_size
    offset = max(0, size + one["offset"]) if one["offset"] < 0 else one["offset"]
    data, limit = b"", one["limit"]
    while len(data) < limit and (chunk := os.pread(handle, min(CHUNK, limit - len(data)), offset + len(data))):
        data += chunk
    return {"size": size, "offset": offset, "b64": base64.b64encode(data).decode()}


def main():
    ask = json.loads(sys.argv[1])
    {"exec": exec_, "sbatch": sbatch, "follow": follow, "read": read}[ask["do"]](ask)


if __name__ == "__main__":
    main()
