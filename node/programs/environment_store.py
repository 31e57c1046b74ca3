"""Publishes and removes versions of software environments. Runs as root on the head, on the folder that all machines
mount read-only at /environments. Needs only the standard library.

  environment_store.py tool     '{"root", "name", "sha256", "bytes"}'   reads a program on standard input; see `tool`
  environment_store.py publish  '{"root", "name", "number", "operation", "user", "stage", "latest"}'
  environment_store.py publish_image  '{"root", "name", "number", "operation"}'
  environment_store.py remove   '{"root", "name", "number"}'
  environment_store.py digests  '{"root", "versions": [[name, number], ...]}'

The answer is one line of JSON: {"error": ..., "hint": ...} when the work failed."""

import errno
import hashlib
import itertools
import json
import os
import pwd
import re
import shutil
import stat
import sys

RECORD = ".headway.json"  # in a version: the operation that made it, its lock's sha256, its Python, its size
LOCK = "headway-lock.txt"  # in a version: every package with its hashes
MODULES = ".modules"
TOOLS = ".tools"
MOST_LOCK = 8 * 1024 * 1024  # bytes
TRAIN = "/usr/lib/python3/dist-packages/headway_train"  # every environment has a copy of Headway's own package
PIECE = 1 << 24
PACKAGE = re.compile(rb"^[A-Za-z0-9][^\n]*(?:==| @ )", re.MULTILINE)  # a package's line in a lock
TORCHRUN = """\
#!/bin/sh
exec "$(dirname -- "$(realpath -- "$0")")"/python -m torch.distributed.run "$@"
"""
MODULE_FILE = """\
-- Made by Headway.
help([[{what}]])
whatis("Name: {name}")
whatis("Version: {number}")
family("headway_environment")
prepend_path("PATH", "{path}/bin")
setenv("VIRTUAL_ENV", "{path}")
setenv("PYTHONNOUSERSITE", "1")
setenv("HEADWAY_ENVIRONMENT", "{name}@{number}")
"""


class WorkRefused(Exception):
    """The work can't be done. `hint`: what to do about it."""

    def __init__(self, text, hint=""):
        super().__init__(text)
        self.hint = hint


def main():
    what, ask = sys.argv[1], json.loads(sys.argv[2])
    try:
        answer = WORK[what](ask)
    except WorkRefused as error:
        answer = {"error": str(error), "hint": error.hint}
    except OSError as error:
        answer = os_error(what, ask, error)
    print(json.dumps(answer))
    return 1 if "error" in answer else 0


def os_error(what, ask, error):
    """Returns an operating system's error as an answer."""
    where = error.filename if isinstance(error.filename, str) else "/environments"
    kept = "" if what == "remove" else "; nothing was kept"
    return {"error": f"{where}: {error.strerror or error}{kept}", "hint": remedy(ask, error)}


def remedy(ask, error):
    """Returns what to do about an operating system's error."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "free space there, or remove versions: headway env ls, headway env rm"
    if error.errno == errno.ENOENT and "stage" in ask and str(error.filename).startswith(ask["stage"]):
        return "the build did not finish: look into its job's log"
    if error.errno in (errno.EACCES, errno.EPERM) and "user" in ask:
        return f"{ask['user']} must be able to read the build, and root of this machine to write to the folder"
    if error.errno == errno.EROFS:
        return f"mount the volume of {ask['root']} writable on this machine, then repeat it"
    return f"check the volume of {ask['root']} on this machine, then repeat it"


# --- programs


def store_tool(ask):
    """Stores a program for all users at ROOT/.tools/NAME, unless it is there. With "bytes": 0 it only looks. Returns
    {"present": whether it is there, "machine": the processor's architecture}."""
    place = os.path.join(ask["root"], TOOLS, ask["name"])
    about = {"machine": os.uname().machine}
    if os.path.exists(place) and digest_of(place) == ask["sha256"]:
        return {"present": True, **about}
    if not ask["bytes"]:
        return {"present": False, **about}
    os.makedirs(os.path.dirname(place), mode=0o755, exist_ok=True)
    draft = f"{place}.{os.getpid()}"
    try:
        with open(draft, "xb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file, PIECE)
        if digest_of(draft) != ask["sha256"]:
            raise WorkRefused(f"{ask['name']} arrived damaged", "repeat it")
        os.chmod(draft, 0o755)
        os.replace(draft, place)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
    return {"present": True, **about}


def digest_of(path):
    """Returns the sha256 of a file."""
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            found.update(piece)
    return found.hexdigest()


# --- versions


def publish(ask):
    """Copies STAGE/venv of the user to ROOT/NAME/NUMBER: owned by root, without write bits. Returns the number, and what
    RECORD says."""

    def fill(draft, _):
        person = UserFiles(ask["user"])
        lock = person.read(os.path.join(ask["stage"], "lock.txt"), MOST_LOCK)
        size = Copy(person, os.path.join(ask["stage"], "venv"), draft).run()
        return lock, size + add_train(draft)

    return publish_folder(ask, fill)


def publish_image(ask):
    """Makes ROOT/NAME/NUMBER of this machine's own Python and the Python packages of its image. Returns as `publish`."""

    def fill(draft, place):
        import importlib.metadata
        import venv

        venv.EnvBuilder(system_site_packages=True, symlinks=True).create(draft)
        bin_folder = os.path.join(draft, "bin")
        for name in os.listdir(bin_folder):
            path = os.path.join(bin_folder, name)
            if not os.path.islink(path):  # the scripts that activate it contain its path
                with open(path) as file:
                    text = file.read()
                with open(path, "w") as file:
                    file.write(text.replace(draft, place))
        write_file(os.path.join(bin_folder, "torchrun"), TORCHRUN.encode())
        os.chmod(os.path.join(bin_folder, "torchrun"), 0o555)
        found = importlib.metadata.distributions(path=[os.path.dirname(TRAIN)])
        lines = sorted({f"{one.metadata['Name']}=={one.version}\n" for one in found})
        for base, below, names in os.walk(draft):
            for path in (os.path.join(base, name) for name in below + names):
                if not os.path.islink(path):
                    os.chmod(path, os.stat(path).st_mode & 0o555)
        return "".join(["# The node image's own packages, from Debian.\n", *lines]).encode(), 0

    return publish_folder(ask, fill)


def publish_folder(ask, fill):
    """Makes ROOT/NAME/NUMBER, complete or not at all: `fill` writes to a draft, knowing the path on machines, and returns
    the lock and its size. A number that is taken by another operation is skipped; what the same operation has made before
    is left as it is. If the packages are those of "latest" ({"number", "sha256", "python"}), its number is used, and its
    files are put back where they are missing, as after a restore. Returns the number, and what RECORD says."""
    root, name, number, operation = ask["root"], ask["name"], ask["number"], ask["operation"]
    os.makedirs(os.path.join(root, name), mode=0o755, exist_ok=True)
    while os.path.lexists(os.path.join(root, name, str(number))):
        known = record_of(os.path.join(root, name, str(number)))
        if known.get("operation") == operation:  # the server stopped after this operation had published it
            write_module(root, name, number)
            return {"number": number, **known, "lock": lock_of(os.path.join(root, name, str(number)))}
        number += 1
    place, draft = os.path.join(root, name, str(number)), os.path.join(root, f".draft-{operation}")
    erase(draft)
    os.mkdir(draft, 0o755)
    try:
        lock, size = fill(draft, f"/environments/{name}/{number}")
        about = {"operation": operation, "sha256": hashlib.sha256(lock).hexdigest(), "python": python_of(draft)}
        about = {**about, "packages": len(PACKAGE.findall(lock)), "bytes": size}
        for file, text in ((LOCK, lock), (RECORD, json.dumps(about).encode())):
            write_file(os.path.join(draft, file), text)
        os.chmod(draft, 0o555)
        latest = ask.get("latest")
        if latest and (latest["sha256"], latest["python"]) == (about["sha256"], about["python"]):
            there = os.path.join(root, name, str(latest["number"]))
            if not os.path.lexists(there) or record_of(there).get("sha256") == about["sha256"]:
                number, place = latest["number"], there
        if os.path.lexists(place):
            erase(draft)
        else:
            os.rename(draft, place)
    except BaseException:
        erase(draft)
        remove_if_empty(os.path.join(root, name))
        raise
    write_module(root, name, number)
    return {"number": number, **about, "lock": lock.decode(errors="replace")}


def remove(ask):
    """Removes a version. Does nothing when it is gone. A job that uses it loses the files that it has not opened."""
    root, name, number = ask["root"], ask["name"], str(ask["number"])
    place, gone = os.path.join(root, name, number), os.path.join(root, f".gone-{name}-{number}")
    module = os.path.join(root, MODULES, name, f"{number}.lua")
    if os.path.lexists(module):
        os.unlink(module)
    erase(gone)
    if os.path.lexists(place):
        os.chmod(place, 0o755)
        os.rename(place, gone)
        erase(gone)
    for folder in (os.path.join(root, name), os.path.join(root, MODULES, name)):
        remove_if_empty(folder)
    return {"removed": True}


def digests(ask):
    """Returns the sha256 of each version's lock, "" for a version that is not there."""
    places = [os.path.join(ask["root"], name, str(number)) for name, number in ask["versions"]]
    return {"sha256": [record_of(place).get("sha256", "") for place in places]}


def record_of(place):
    """Returns what RECORD of a version says; {} if it can't be read."""
    try:
        with open(os.path.join(place, RECORD)) as file:
            return dict(json.load(file))
    except (OSError, ValueError):
        return {}


def lock_of(place):
    """Returns the version's list of packages with their hashes. Raises OSError."""
    with open(os.path.join(place, LOCK), encoding="utf-8", errors="replace") as file:
        return file.read()


def write_module(root, name, number):
    """Writes the version's module file: `module load NAME` or NAME/NUMBER."""
    folder = os.path.join(root, MODULES, name)
    os.makedirs(folder, mode=0o755, exist_ok=True)
    what = f"Software environment {name}, version {number}. headway env show {name}@{number} lists its packages."
    text = MODULE_FILE.format(name=name, number=number, path=f"/environments/{name}/{number}", what=what)
    draft = os.path.join(folder, f".{number}.draft")
    if os.path.lexists(draft):
        os.unlink(draft)
    write_file(draft, text.encode())
    os.replace(draft, os.path.join(folder, f"{number}.lua"))


def python_of(venv):
    """Returns the version of the environment's Python, from its pyvenv.cfg. Raises WorkRefused for a folder that is none."""
    try:
        handle = os.open(os.path.join(venv, "pyvenv.cfg"), os.O_RDONLY | os.O_NOFOLLOW)
        with open(handle) as file:
            found = re.search(r"^version(?:_info)?\s*=\s*([0-9][0-9.]*)", file.read(), re.MULTILINE)
    except OSError:
        found = None
    if found is None or not os.path.islink(os.path.join(venv, "bin", "python")):
        raise WorkRefused("the build left no Python environment", "look into the job's log")
    return found[1]


def add_train(venv):
    """Copies Headway's package for training scripts into the environment, unless it has one. Returns its bytes."""
    lib = os.path.join(venv, "lib")
    size = 0
    for python in sorted(os.listdir(lib)):
        target = os.path.join(lib, python, "site-packages", "headway_train")
        above = (lib, os.path.join(lib, python), os.path.dirname(target))
        if any(os.path.islink(folder) for folder in above):  # a link of the user must not lead root elsewhere
            continue
        if not os.path.isdir(os.path.dirname(target)) or os.path.lexists(target) or not os.path.isdir(TRAIN):
            continue
        os.chmod(os.path.dirname(target), 0o755)
        os.mkdir(target)
        for file in sorted(os.listdir(TRAIN)):
            if file.endswith(".py"):
                with open(os.path.join(TRAIN, file), "rb") as text:
                    data = text.read()
                write_file(os.path.join(target, file), data)
                size += len(data)
        os.chmod(target, 0o555)
        os.chmod(os.path.dirname(target), 0o555)
    return size


def write_file(path, data):
    """Writes a new file that everybody may read."""
    with open(path, "xb") as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o444)


def erase(folder):
    """Deletes a folder whose folders may have no write bits. Works also where root has no special rights (NFS)."""
    if not os.path.lexists(folder):
        return
    for base, below, _ in os.walk(folder):
        for name in below:
            if not os.path.islink(os.path.join(base, name)):
                os.chmod(os.path.join(base, name), 0o755)
    os.chmod(folder, 0o755)
    shutil.rmtree(folder)


def remove_if_empty(folder):
    """Removes a folder unless it contains something or does not exist."""
    try:
        os.rmdir(folder)
    except OSError:
        pass


# --- copying a user's folder


class UserFiles:
    """Reads files with the rights of a user, so that a link in their folder can't make root read another one's."""

    def __init__(self, name):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            hint = "add the person to a team in the cluster file, then headway apply"
            raise WorkRefused(f"there is no user {name} on this machine", hint) from None
        self.uid, self.gid, self.groups = entry.pw_uid, entry.pw_gid, os.getgrouplist(name, entry.pw_gid)

    def __enter__(self):
        self.mine = os.getgroups()
        os.setgroups(self.groups)
        os.setegid(self.gid)
        os.seteuid(self.uid)
        return self

    def __exit__(self, *_):
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(self.mine)

    def read(self, path, most):
        """Returns the content of a file. Raises WorkRefused for a larger one."""
        with self:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(handle, "rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise WorkRefused(f"{path} has more than {most >> 20} MiB")
        return data


class Copy:
    """Copies a folder of a user: files, links and folders; modes without write and setuid bits; times as they are,
    because Python compares them with those of compiled files. Copying, instead of taking the files over, leaves no open
    file through which the user could write later."""

    def __init__(self, person, source, target):
        self.person, self.source, self.target = person, source, target
        self.size = 0

    def run(self):
        """Copies everything and returns the bytes. Raises WorkRefused for what an environment can't contain."""
        with self.person:
            handle = os.open(self.source, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            self.folder(handle, self.target, "")
        finally:
            os.close(handle)
        return self.size

    def folder(self, handle, target, inside):
        """Copies the open folder `handle` to `target`; `inside` is its path in the source, for messages. Raises WorkRefused
        for what is neither a file nor a folder nor a link."""
        with self.person:
            found = [(one.name, one.stat(follow_symlinks=False)) for one in os.scandir(handle)]
        for name, about in found:
            path, to = f"{inside}{name}", os.path.join(target, name)
            if stat.S_ISLNK(about.st_mode):
                self.link(handle, name, to, path)
            elif stat.S_ISDIR(about.st_mode):
                with self.person:
                    below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handle)
                try:
                    os.mkdir(to, 0o755)
                    self.folder(below, to, f"{path}/")
                    os.chmod(to, 0o555)
                finally:
                    os.close(below)
            elif stat.S_ISREG(about.st_mode):
                self.file(handle, name, to)
            else:
                raise WorkRefused(
                    f"{path} is neither a file nor a folder nor a link", "look at what the packages install"
                )

    def file(self, handle, name, to):
        """Copies one file and adds its bytes to `size`. Raises WorkRefused if it is no longer a file."""
        with self.person:
            source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=handle)
        try:
            about = os.fstat(source)
            if not stat.S_ISREG(about.st_mode):
                raise WorkRefused(f"{name} was replaced during the copy", "repeat it")
            target = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                self.size += copy_bytes(source, target)
                os.fchmod(target, 0o555 if about.st_mode & 0o111 else 0o444)
                os.utime(target, ns=(about.st_mtime_ns, about.st_mtime_ns))
            finally:
                os.close(target)
        finally:
            os.close(source)

    def link(self, handle, name, to, path):
        """Copies one link. Raises WorkRefused if it leads neither into the copied folder nor below /usr."""
        with self.person:
            target = os.readlink(name, dir_fd=handle)
        end = os.path.normpath(os.path.join(os.path.dirname(path), target))
        # ".." after a name is not what it looks like if the name is a link itself
        climbs = ".." in list(itertools.dropwhile(lambda part: part in ("", ".", ".."), target.split("/")))
        if climbs or end == ".." or end.startswith("../") or (end.startswith("/") and not end.startswith("/usr/")):
            raise WorkRefused(f"{path} links to {target}, outside the environment", "look at what the packages install")
        os.symlink(target, to)


def copy_bytes(source, target):
    """Copies an open file and returns the bytes."""
    size = 0
    while True:
        try:
            done = os.copy_file_range(source, target, PIECE)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            while piece := os.read(source, PIECE):
                size += len(piece)
                while piece:
                    piece = piece[os.write(target, piece) :]
            return size
        if not done:
            return size
        size += done


WORK = {"tool": store_tool, "publish": publish, "publish_image": publish_image, "remove": remove, "digests": digests}
if __name__ == "__main__":
    sys.exit(main())
