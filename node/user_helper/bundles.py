"""Bundles of job files: stored once under the digest of their content, copied for each job."""

import errno
import json
import os
import sys
import time
import zlib

from user_helper import identity

MOST_FILES, MOST_UNPACKED = 20_000, 512 * 1024 * 1024  # of one bundle; an archive of 64 MiB could unpack to any size
MOST_MEMORY = 1024 * 1024 * 1024
BUNDLE_KEPT_S = 30 * 86400


def store_bundle(request):
    """Stores the bundle on standard input as the user, and prints whether it is stored now."""
    import resource
    import tarfile

    entry = identity.user_entry(request["user"])
    identity.must_be_current(entry)
    data = sys.stdin.buffer.read()
    identity.apply_limits(entry)
    identity.become_user(entry)
    # an archive's headers could make tarfile use any amount of memory
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    try:
        present = keep_bundle(request["root"], request["digest"], data)
    except (OSError, EOFError, ValueError, MemoryError, RecursionError, tarfile.TarError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error or type(error).__name__
        identity.refuse(f"{os.uname().nodename}: the files can't be stored in {request['root']}: {reason}")
    print(json.dumps({"present": present}), flush=True)


def keep_bundle(root, digest, data):
    """Stores a bundle and returns whether it is stored now. The bundle gets its name after its digest was verified. Raises
    ValueError, or the errors of tarfile and the file system; then nothing remains on disk."""
    import io
    import tarfile

    place = os.path.join(root, "bundles", digest)
    if touch_bundle(place) or not data:
        return os.path.isdir(place)
    make_folder(os.path.dirname(place))
    os.chmod(root, 0o700)
    forget_unused(os.path.dirname(place))
    part = f"{place}.{os.getpid()}"
    os.mkdir(part, 0o700)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz", encoding="utf-8") as archive:
            unpack(archive, part)
        if tree_digest(part) != digest:
            raise ValueError("they were damaged in transfer: send them again")
        for path in walk_folder(part):
            if not os.path.islink(path):
                os.chmod(path, 0o555 if os.path.isdir(path) or os.access(path, os.X_OK) else 0o444)
        try:
            os.rename(part, place)
        except OSError as error:  # another request of the same user was faster
            if not os.path.isdir(place):
                raise error
    finally:
        erase(part)
    return True


def stage_bundle(request):
    """Copies the bundle to the job's work folder, where the job may write. Runs as the user. An existing folder stays
    unchanged: the steps of a pipeline share it, and the bundle may already be deleted."""
    for path, text in request["files"].items():
        if not os.path.exists(path):
            make_folder(os.path.dirname(path))
            with open(f"{path}.{os.getpid()}", "w") as file:
                file.write(text)
            os.chmod(file.name, 0o555)
            os.replace(file.name, path)
    copy_bundle(request)
    if request.get("resume"):
        link_checkpoint(request["resume"])


def copy_bundle(request):
    """Copies the bundle to the job's work folder. An existing folder stays unchanged."""
    import shutil

    work = request["work"]
    make_folder(os.path.dirname(work))
    if not request["bundle"]:
        os.makedirs(work, exist_ok=True)
        return
    source = os.path.join(request["root"], "bundles", request["bundle"])
    known = touch_bundle(source)
    if os.path.isdir(work):  # complete: it gets its name only after everything was copied
        return
    if not known:
        identity.refuse(f"the files of this job are no longer on {os.uname().nodename}: send them again")
    part = f"{work}.{os.getpid()}"
    shutil.copytree(source, part, symlinks=True)
    for path in walk_folder(part):
        if not os.path.islink(path):
            os.chmod(path, os.stat(path).st_mode | 0o200)
    os.rename(part, work)


def link_checkpoint(request):
    """Puts a checkpoint of an earlier job into the folder of a new job's checkpoints; it stays when the earlier job deletes
    it. Files of headway_train are hard links, which cost no space: after it has published a checkpoint, it only deletes it.
    Other programs write to existing files, so theirs are copied. Refuses the request if the checkpoint is gone."""
    import shutil

    source = os.path.join(request["source"], request["name"])
    target = os.path.join(request["target"], request["name"])
    if os.path.isdir(target):  # an earlier try of the same request
        return
    make_folder(request["target"])
    remove_parts(request["target"], request["name"])
    published = os.path.isfile(os.path.join(source, "manifest.json"))
    copy = link_or_copy if published else shutil.copy2
    part = os.path.join(request["target"], f".{request['name']}.{os.getpid()}.part")
    try:
        shutil.copytree(source, part, symlinks=True, copy_function=copy)
        os.rename(part, target)
    except (OSError, shutil.Error) as error:
        shutil.rmtree(part, ignore_errors=True)
        reason = getattr(error, "strerror", None) or error
        identity.refuse(f"{os.uname().nodename}: checkpoint {source} can't be used for a new job: {reason}")


def remove_parts(folder, name):
    """Deletes this user's partial copies of checkpoint `name` whose processes were killed. Links, and copies of running
    processes, stay."""
    before, after = f".{name}.", ".part"
    for entry in os.scandir(folder):
        pid = entry.name.removeprefix(before).removesuffix(after)
        if entry.name != f"{before}{pid}{after}" or not pid.isdecimal():
            continue
        runs = pid != str(os.getpid()) and os.path.exists(f"/proc/{pid}")
        try:
            mine = entry.stat(follow_symlinks=False).st_uid == os.geteuid()
            if mine and not runs:
                erase(entry.path)
        except OSError:  # they only take space
            pass


def link_or_copy(source, target, *, follow_symlinks=True):
    """Makes a hard link; a copy where the file system, or the owner of the file, permits no link."""
    import shutil

    try:
        os.link(source, target, follow_symlinks=follow_symlinks)
    except (PermissionError, NotADirectoryError):
        shutil.copy2(source, target, follow_symlinks=follow_symlinks)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        shutil.copy2(source, target, follow_symlinks=follow_symlinks)


def touch_bundle(place):
    """Returns whether the bundle is stored, and sets the time of its last use."""
    try:
        os.utime(place)
    except FileNotFoundError:
        return False
    return True


def forget_unused(folder):
    """Deletes bundles that no job has used for BUNDLE_KEPT_S, and interrupted transfers of that age. Each job has its
    own copy."""
    for entry in os.scandir(folder):
        if time.time() - entry.stat(follow_symlinks=False).st_mtime > BUNDLE_KEPT_S:
            erase(entry.path)


def unpack(archive, folder):
    """Unpacks plain files, folders and links into `folder`, and nothing outside of it. Raises ValueError for names that
    lead out and for too much data."""
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
            links.append((member.linkname, path))  # created last, so that no link redirects a file
    for target, path in links:
        os.symlink(target, path)


def tree_digest(folder):
    """Returns the SHA-256 over kind, content and name of every file. headway.sdk.bundle computes the same digest."""
    import hashlib

    lines = []
    for path in walk_folder(folder):
        name = os.path.relpath(path, folder)
        if os.path.islink(path):
            lines.append(f"l {hashlib.sha256(os.readlink(path).encode(errors='surrogateescape')).hexdigest()} {name}")
        elif not os.path.isdir(path):
            content = hashlib.sha256()
            with open(path, "rb") as file:
                while chunk := file.read(identity.CHUNK):
                    content.update(chunk)
            lines.append(f"{'x' if os.access(path, os.X_OK) else 'f'} {content.hexdigest()} {name}")
    listing = "\n".join(sorted(lines)).encode(errors="surrogateescape")  # names may contain any bytes
    return hashlib.sha256(listing).hexdigest()


def make_folder(path):
    """Creates a folder and the folders above it; refuses the request if that fails."""
    try:
        os.makedirs(path, mode=0o755, exist_ok=True)
    except OSError as error:
        identity.refuse(f"{os.uname().nodename}: {path} can't be created: {error.strerror}")


def walk_folder(folder):
    """Yields the folder and everything in it, inner entries first."""
    for place, folders, names in os.walk(folder, topdown=False):
        yield from (os.path.join(place, name) for name in names)
        yield from (os.path.join(place, name) for name in folders if os.path.islink(os.path.join(place, name)))
        yield place


def erase(folder):
    """Deletes a folder with all its content, also a read-only bundle."""
    import shutil

    if not os.path.isdir(folder) or os.path.islink(folder):
        return
    for path in walk_folder(folder):
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
    shutil.rmtree(folder, ignore_errors=True)
