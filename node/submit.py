"""Runs one thing as a person on the head: a command, sbatch with a script, or reading a job's log.

Sent as the program text of `python3 -c`, with one JSON argument; runs as root and gives up root for good before it
touches anything of the person's. Only the standard library, Python 3.9 or newer.

  {"do": "exec",   "user": ..., "argv": [...], "cwd": ""}          becomes the command; its output and code are its own
  {"do": "run",    "user": ..., "argv": [...]}                     the same, root too, for somebody who watches: ended
                    when nobody reads its output any more, and by SIGTERM
  {"do": "sbatch", "user": ..., "args": [...], "cwd": "", "script_name": ..., "script_args": [...], "has_script": true}
                    standard input is the script; with "stage": {"root", "bundle", "work", "files": {path: text}} the person's
                    copy of a bundle is made first, and small files that are missing; "env": {...} is set for sbatch
  {"do": "bundle", "user": ..., "root": ..., "digest": ...}         keeps the tar archive on standard input as a read-only
                    folder named by its content, unless it is there; prints {"present": bool}, asks only when it is empty
  {"do": "follow", "user": ..., "path": ..., "offset": 0}           frames on standard output until it is ended:
                    "D <n>\n" + n bytes, "T\n" when the file was cut short or replaced, "W\n" while there is none
  {"do": "read",   "files": [{"user", "path", "offset", "limit"}], "reports": [{"job", "offset", "limit"}]}
                    one JSON line a file, then one a report: {"size", "b64"} or {"error"}; reports are ours, see agent.py
  {"do": "serve",  "user": ...}                                     answers "sbatch" of this person ("": "read" of anybody's) one
                    after the other, until standard input ends or nobody has asked for IDLE_S. Says "ready\n"; then each
                    request is a line {"ask": {...}, "size": n} + n bytes for its standard input, each answer a line
                    {"code", "out", "err"} + as many bytes of both outputs
Ends with 97 and one sentence on standard error when the person or the folder can't be used.
"""

import binascii
import errno
import json
import os
import pwd
import select
import signal
import stat
import sys
import time
import zlib
from functools import partial

REFUSED = 97
REPORTS = "/var/lib/headway/reports"
PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/games:/usr/games"
POLL_S = 0.1
limited = False  # this process was put under the person's limits, and so is all that it starts
mark = ""  # `run` sets it: what tells a refusal from a command's own words
GRACE_S = 5  # from SIGTERM to SIGKILL
CHUNK = 256 * 1024
LOGINS = "/run/headway-login"  # root's alone: what a login of each person sets, kept a while
LOGIN_KEPT_S = 600
LOGIN_S = 30  # a login shell that takes longer does not end
MOST_ENVIRONMENT = 1024 * 1024  # bytes; Linux takes two of them, with all arguments
SESSION = "/usr/local/libexec/headway-session"  # the head's limits of a session (cgroup v1)
UNIFIED = "/sys/fs/cgroup/cgroup.controllers"  # is there with cgroup v2
IDLE_S = 900  # without a request; Headway itself lets go of a helper long before
MOST_ANSWER = 64 * 1024 * 1024  # bytes kept of each output; the rest is read and dropped
MOST_FILES, MOST_UNPACKED = 20_000, 512 * 1024 * 1024  # of a bundle: 64 MiB of archive can be made to hold any amount
MOST_MEMORY = 1024 * 1024 * 1024
BUNDLE_KEPT_S = 30 * 86400
LOGIN_FILES = (".bash_profile", ".bash_login", ".profile", ".bashrc")


def refuse(sentence):
    sys.stderr.write(mark + sentence + "\n")
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


def must_be_current(entry):
    if entry.pw_shell.endswith(("nologin", "false")):
        refuse(f"{entry.pw_name} may not work on this cluster any more")


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


def limit(entry):
    """Puts this process under the limits of the person's logins: what comes through Headway is no way around them."""
    if limited:
        return
    pid = str(os.getpid())
    if os.path.isfile(UNIFIED):  # systemd holds the limits of the person's slice
        call = ["StartTransientUnit", "ssa(sv)a(sa(sv))", f"headway-{pid}.scope", "fail", "2"]
        more = ["PIDs", "au", "1", pid, "Slice", "s", f"user-{entry.pw_uid}.slice", "0"]
        argv = ["busctl", "--quiet", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"]
        quietly([*argv, "org.freedesktop.systemd1.Manager", *call, *more], {})
    quietly([SESSION], {"PAM_TYPE": "open_session", "PAM_USER": entry.pw_name})


def quietly(argv, env):
    """Runs a program to its end. One that is missing or fails keeps nobody out, as at a login."""
    null = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)]
    try:
        child = os.posix_spawnp(argv[0], argv, {"PATH": PATH, **env}, file_actions=null)
    except OSError:
        return
    os.waitpid(child, 0)


def enter(entry, cwd):
    """`cwd` against the home folder; the home itself when it is empty."""
    place = os.path.join(entry.pw_dir, cwd) if cwd else entry.pw_dir
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
    if not ask.get("operator"):  # Headway's own Slurm operator has no login shell either
        must_be_current(entry)
        limit(entry)
    become(entry)
    enter(entry, ask["cwd"])
    os.execv("/bin/bash", as_login(ask["argv"]))


def run(ask):
    """A session of its own, so that all the command started can be ended; the watcher stays what sshd started."""
    global mark
    mark = "\0refused\0"
    if ask["user"] != "root":
        must_be_current(person(ask["user"]))
    child = os.fork()
    if child == 0:
        os.setsid()
        start(ask)
    os.close(0)
    ended, told = os.pidfd_open(child), os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.close(told[1]))
    watch = select.poll()
    watch.register(ended, select.POLLIN)
    for number in (1, told[0]):  # either says so when its other end is gone
        watch.register(number, 0)
    if ended not in [number for number, _ in watch.poll()]:
        for last_word in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(child, last_word)
            except ProcessLookupError:
                break
            if select.select([ended], [], [], GRACE_S)[0]:
                break
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(code if code >= 0 else 128 - code)


def start(ask):
    if ask["user"] != "root":
        exec_({**ask, "cwd": ""})
    argv = ask["argv"]
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        sys.stderr.write(f"{argv[0]}: {'command not found' if missing else error.strerror}\n")
        sys.stderr.flush()
        os._exit(127 if missing else 126)


def in_child(work):
    """Exit code of `work` in a child, which alone gives up root."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            refuse(f"{type(error).__name__}: {error}")
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255


def login_stamp(entry):
    """Changes when a file that a login reads does."""
    paths = ["/etc/profile", "/etc/bash.bashrc", "/etc/environment", "/etc/profile.d"]
    paths += sorted(os.path.join("/etc/profile.d", name) for name in os.listdir("/etc/profile.d"))
    paths += [os.path.join(entry.pw_dir, name) for name in LOGIN_FILES]
    stamp = [entry.pw_name, entry.pw_dir, entry.pw_shell]
    for path in paths:
        try:
            seen = os.stat(path)
        except OSError:
            continue
        stamp.append([path, seen.st_mtime_ns, seen.st_size])
    return stamp


def login_environment(entry):
    """What a login sets, as sbatch would find it there. A login shell takes longer than sbatch does (Lmod), so it is
    asked once, and again when its files change or LOGIN_KEPT_S have passed."""
    os.makedirs(LOGINS, mode=0o700, exist_ok=True)
    kept, stamp = os.path.join(LOGINS, str(entry.pw_uid)), login_stamp(entry)
    try:
        with open(kept) as file:
            found = json.load(file)
        if found["stamp"] == stamp and 0 <= time.time() - found["at"] < LOGIN_KEPT_S:
            return found["env"]
    except (OSError, ValueError, KeyError):
        pass
    env = ask_login(entry)
    part = f"{kept}.{os.getpid()}"
    with open(part, "w") as file:
        json.dump({"stamp": stamp, "at": time.time(), "env": env}, file)
    os.replace(part, kept)
    return env


def ask_login(entry):
    """On a pipe of its own, for a profile may print; its words go nowhere, as they do when ssh runs a command."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ours)
        limit(entry)
        become(entry)
        enter(entry, "")
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.set_inheritable(theirs, True)
        os.execv("/bin/bash", ["/bin/bash", "--login", "-c", 'exec env -0 >&"$0"', str(theirs)])
    os.close(theirs)
    data, ends = b"", time.monotonic() + LOGIN_S
    while len(data) <= MOST_ENVIRONMENT and select.select([ours], [], [], max(0, ends - time.monotonic()))[0]:
        piece = os.read(ours, CHUNK)
        if not piece:
            break
        data += piece
    else:
        os.kill(child, signal.SIGKILL)
        data = b""
    os.close(ours)
    os.waitpid(child, 0)
    words = (word.partition("=") for word in data.decode(errors="surrogateescape").split("\0") if "=" in word)
    env = {name: value for name, _, value in words if name not in ("_", "SHLVL", "PWD", "OLDPWD")}
    if not env:
        refuse(f"a login shell of {entry.pw_name} does not get to run anything: look at their .profile")
    return env


def sbatch(ask):
    """The script gets its own name in a folder only the person can read: sbatch names the job after it. slurmctld
    has its own copy once sbatch has ended, so the folder goes."""
    entry = person(ask["user"])
    must_be_current(entry)
    text = sys.stdin.buffer.read() if ask["has_script"] else b""
    env = login_environment(entry)
    words, folder = ["sbatch", *ask["args"]], ""
    if ask["has_script"]:
        folder = f"/tmp/headway-{os.urandom(8).hex()}"
        os.mkdir(folder, 0o700)
        path = os.path.join(folder, ask["script_name"])
        with open(path, "xb") as file:
            file.write(text)
        os.chmod(path, 0o700)
        for name in (path, folder):
            os.chown(name, entry.pw_uid, entry.pw_gid)
        words += [path, *ask["script_args"]]

    def work():
        limit(entry)
        become(entry)
        if ask.get("stage"):
            stage(ask["stage"])
        enter(entry, ask["cwd"])
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.execvpe(words[0], words, {**env, **ask.get("env", {}), "PWD": os.environ["PWD"]})

    code = in_child(work)
    if folder:
        remove(entry, folder)  # this process is the person from here on, and has nothing else to do
    sys.exit(code)


def stage(ask):
    """The job's own folder: a copy of the bundle that the job may write to. As the person."""
    import shutil

    for path, text in ask["files"].items():
        if not os.path.exists(path):
            make_folder(os.path.dirname(path))
            with open(f"{path}.{os.getpid()}", "w") as file:
                file.write(text)
            os.chmod(file.name, 0o555)
            os.replace(file.name, path)
    work = ask["work"]
    make_folder(os.path.dirname(work))
    if not ask["bundle"]:
        os.makedirs(work, exist_ok=True)
        return
    source = os.path.join(ask["root"], "bundles", ask["bundle"])
    if not used(source):
        refuse(f"the files of this job are not on {os.uname().nodename} any more: send them again")
    if not os.path.isdir(work):  # the steps of a pipeline share one
        part = f"{work}.{os.getpid()}"
        shutil.copytree(source, part, symlinks=True)
        for path in under(part):
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode | 0o200)
        os.rename(part, work)


def make_folder(path):
    try:
        os.makedirs(path, mode=0o755, exist_ok=True)
    except OSError as error:
        refuse(f"{os.uname().nodename}: {path} can't be made: {error.strerror}")


def under(folder):
    """The folder and all in it, the inner first."""
    for place, folders, names in os.walk(folder, topdown=False):
        yield from (os.path.join(place, name) for name in names)
        yield from (os.path.join(place, name) for name in folders if os.path.islink(os.path.join(place, name)))
        yield place


def bundle(ask):
    import resource
    import tarfile

    entry = person(ask["user"])
    must_be_current(entry)
    data = sys.stdin.buffer.read()
    limit(entry)
    become(entry)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))  # headers can be made to hold any amount too
    try:
        present = keep_bundle(ask["root"], ask["digest"], data)
    except (OSError, EOFError, ValueError, MemoryError, RecursionError, tarfile.TarError, zlib.error) as error:
        said = getattr(error, "strerror", None) or error or type(error).__name__
        refuse(f"{os.uname().nodename}: the files can't be kept in {ask['root']}: {said}")
    print(json.dumps({"present": present}), flush=True)


def keep_bundle(root, digest, data):
    """Whether the bundle is there now. Read before it gets its name, so a torn one never has it. Raises ValueError, or
    what tarfile and the file system raise; nothing is left then."""
    import io
    import tarfile

    place = os.path.join(root, "bundles", digest)
    if used(place) or not data:
        return os.path.isdir(place)
    make_folder(os.path.dirname(place))
    os.chmod(root, 0o700)
    forget_unused(os.path.dirname(place))
    part = f"{place}.{os.getpid()}"
    os.mkdir(part, 0o700)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
            unpack(archive, part)
        if tree_digest(part) != digest:
            raise ValueError("they arrived damaged: send them again")
        for path in under(part):
            if not os.path.islink(path):
                os.chmod(path, 0o555 if os.path.isdir(path) or os.access(path, os.X_OK) else 0o444)
        try:
            os.rename(part, place)
        except OSError as error:  # another request of the same person was quicker
            if not os.path.isdir(place):
                raise error
    finally:
        erase(part)
    return True


def used(place):
    """Whether the bundle is there; from now on it counts as just used."""
    try:
        os.utime(place)
    except FileNotFoundError:
        return False
    return True


def forget_unused(folder):
    """Bundles, and what a cut transfer has left, that no job was made of for BUNDLE_KEPT_S. Each job has its own copy."""
    for entry in os.scandir(folder):
        if time.time() - entry.stat(follow_symlinks=False).st_mtime > BUNDLE_KEPT_S:
            erase(entry.path)


def erase(folder):
    """A bundle's folder, which is read-only, with all in it."""
    import shutil

    if not os.path.isdir(folder) or os.path.islink(folder):
        return
    for path in under(folder):
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)


def unpack(archive, folder):
    """Plain files, folders and links with names of their own; nothing above the folder."""
    import shutil

    links, left = [], MOST_UNPACKED
    for count, member in enumerate(archive, 1):
        left -= member.size
        if count > 2 * MOST_FILES or left < 0:
            raise ValueError(f"they are more than {MOST_FILES} files or {MOST_UNPACKED >> 20} MiB")
        parts = member.name.split("/")
        if member.name.startswith("/") or any(word in ("", ".", "..") for word in parts):
            raise ValueError(f"a file's name can't be used: {member.name[:100]!r}")
        path = os.path.join(folder, *parts)
        os.makedirs(path if member.isdir() else os.path.dirname(path), exist_ok=True)
        if member.isfile():
            with open(path, "xb") as file:
                shutil.copyfileobj(archive.extractfile(member), file)
            os.chmod(path, 0o700 if member.mode & 0o100 else 0o600)
        elif member.issym():
            links.append((member.linkname, path))  # last, so that none leads a file elsewhere
    for target, path in links:
        os.symlink(target, path)


def tree_digest(folder):
    """SHA-256 over every file's kind, content and name; headway.sdk.bundle counts the same way."""
    import hashlib

    lines = []
    for path in under(folder):
        name = os.path.relpath(path, folder)
        if os.path.islink(path):
            lines.append(f"l {hashlib.sha256(os.readlink(path).encode()).hexdigest()} {name}")
        elif not os.path.isdir(path):
            content = hashlib.sha256()
            with open(path, "rb") as file:
                while chunk := file.read(CHUNK):
                    content.update(chunk)
            lines.append(f"{'x' if os.access(path, os.X_OK) else 'f'} {content.hexdigest()} {name}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def remove(entry, folder):
    """As the person, who may have put a link in the folder's place meanwhile. What is more than plain files in one
    level is left to /tmp's own cleaning."""
    become(entry)
    try:
        for name in os.listdir(folder):
            os.unlink(os.path.join(folder, name))
        os.rmdir(folder)
    except OSError:
        pass


def open_log(path):
    """A regular file or None; a FIFO never makes us wait."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is not a plain file")
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
        if in_child(partial(answer, one)):
            print(json.dumps({"error": f"no user {one['user']}"}), flush=True)
    for one in ask.get("reports", ()):
        print(json.dumps(read_part({**one, "path": f"{REPORTS}/{int(one['job'])}.jsonl"})), flush=True)


def answer(one):
    become(person(one["user"]))
    print(json.dumps(read_part(one)), flush=True)


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
    return {"size": size, "offset": offset, "b64": binascii.b2a_base64(data, newline=False).decode()}


def serve(ask):
    """One helper a person: its limits are theirs from the start, so no request has to wait for them. Root is given up in
    each request's own child, as ever; none of them can reach the pipes that requests and answers come and go by."""
    global limited
    import warnings  # noqa: F401  (os.execvpe does: here once, not in each child)

    user = ask["user"]
    if user:
        entry = person(user)
        must_be_current(entry)
        limit(entry)
        limited = True
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")  # neither is handed on by exec
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    answers.write(b"ready\n")
    answers.flush()
    while select.select([questions], [], [], IDLE_S)[0]:
        line = questions.readline()
        if not line.endswith(b"\n"):
            return
        asked = json.loads(line)
        data = questions.read(asked["size"])
        if len(data) < asked["size"]:
            return
        code, out, err = served(asked["ask"], data, user, (questions, answers))
        answers.write(json.dumps({"code": code, "out": len(out), "err": len(err)}).encode() + b"\n" + out + err)
        answers.flush()


def served(ask, data, user, ours):
    """(exit code, standard output, standard error) of one request in a child of its own."""
    if (ask["do"], ask.get("user", "")) not in (("sbatch", user), ("read", user)):
        return REFUSED, b"", b"this helper is not for that\n"
    out, err = os.pipe(), os.pipe()
    try:
        child = os.fork()
    except OSError as error:
        for number in (*out, *err):
            os.close(number)
        said = f"{os.uname().nodename}: nothing can be started for {user or 'root'}: {error.strerror}\n"
        return REFUSED, b"", said.encode()
    if child == 0:
        be_served(ask, data, out[1], err[1], ours)
    os.close(out[1])
    os.close(err[1])
    said = gather(child, out[0], err[0])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return (code if code >= 0 else 128 - code), *said


def be_served(ask, data, out, err, ours):
    code = 1
    try:
        for number in ours:
            os.close(number.fileno())
        feed = os.memfd_create("input")
        view = memoryview(data)
        while view:
            view = view[os.write(feed, view) :]
        os.lseek(feed, 0, os.SEEK_SET)
        for number, place in ((feed, 0), (out, 1), (err, 2)):
            os.dup2(number, place)
        DOES[ask["do"]](ask)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException as error:
        refuse(f"{type(error).__name__}: {error}")
    sys.stdout.flush()
    os._exit(code)


def gather(child, *numbers):
    """What a child writes until it has ended. Whatever it leaves behind may keep the pipes, and is not waited for."""
    found = {number: bytearray() for number in numbers}
    ended = os.pidfd_open(child)
    watch = select.poll()
    for number in (*numbers, ended):
        watch.register(number, select.POLLIN)
    for number in numbers:
        os.set_blocking(number, False)
    over = False
    while not over:
        over = ended in [number for number, _ in watch.poll()]  # looked at first: what it wrote is in the pipes by now
        for number, data in found.items():
            pour(number, data, watch)
    for number in (*numbers, ended):
        os.close(number)
    return [bytes(data) for data in found.values()]


def pour(number, data, watch):
    """All that is in a pipe now: a pipe holds less than four of these, and whoever writes on is not waited for."""
    for _ in range(8):
        try:
            piece = os.read(number, CHUNK)
        except BlockingIOError:
            return
        if not piece:
            try:
                watch.unregister(number)
            except KeyError:
                pass
            return
        data += piece[: max(0, MOST_ANSWER - len(data))]


DOES = {"exec": exec_, "run": run, "sbatch": sbatch, "bundle": bundle, "follow": follow, "read": read, "serve": serve}


def main():
    ask = json.loads(sys.argv[1])
    DOES[ask["do"]](ask)


if __name__ == "__main__":
    main()
