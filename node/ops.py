"""Looks at and changes one machine. Sent over SSH each time it is needed, so a machine needs only Python 3.10.

Standard input: one JSON object {"do": "observe", ...} or {"do": "apply", "steps": [...]}.
Standard output: observe prints one JSON object; apply prints a JSON line for each step as it ends:
{"i": 0, "ok": true, "s": 0.012} or {"i": 3, "ok": false, "error": "..."}, and stops at the first that fails.
Files are written beside the target and renamed over it, so a kill at any moment leaves the old or the new one.
"""

from __future__ import annotations

import base64
import contextlib
import grp
import hashlib
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import time
from typing import Any

JOB_STEP = re.compile(r"/job_\d+/step_(?!extern)")  # in the cgroups of what belongs to a job
STAMPS = "/run/headway/loaded"
MANAGED = "/var/lib/headway/managed.json"
UNIT_FIELDS = (
    "Id,ActiveState,SubState,UnitFileState,MainPID,ActiveEnterTimestampMonotonic,ExecMainStartTimestampMonotonic"
)


class StepFailed(Exception):
    """What went wrong in a step, in words for a person."""


def observe(ask: dict[str, Any]) -> dict[str, Any]:
    """The facts that differences are computed from: files, units, homes; nothing is changed."""
    owners = ask.get("owners", {})
    return {
        "files": {path: seen for path in ask.get("files", ()) if (seen := see_file(path)) is not None},
        "units": see_units(ask.get("units", ())),
        "managed": read_json(MANAGED, []),
        "dirs": [path for path in ask.get("dirs", ()) if os.path.isdir(path) and not squatted(path, owners.get(path))],
        "boot_id": read_text("/proc/sys/kernel/random/boot_id").strip(),
        "sessions": see_sessions(ask.get("users", ())),
        "texts": {path: read_text(path) for path in ask.get("texts", ()) if os.path.isfile(path)},
    }


def see_file(path: str) -> dict[str, Any] | None:
    try:
        info = os.lstat(path)
    except OSError:
        return None
    if not stat.S_ISREG(info.st_mode):
        return {"sha": "", "mode": 0, "owner": "", "group": "", "ctime": info.st_ctime}
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    return {
        "sha": digest,
        "mode": stat.S_IMODE(info.st_mode),
        "owner": name_of(info.st_uid, pwd.getpwuid),
        "group": name_of(info.st_gid, grp.getgrgid),
        "ctime": info.st_ctime,
    }


def name_of(number: int, look_up: Any) -> str:
    try:
        return str(look_up(number)[0])
    except KeyError:
        return str(number)


def see_units(names: Any) -> dict[str, Any]:
    if not names:
        return {}
    done = subprocess.run(
        ["systemctl", "show", "-p", UNIT_FIELDS, *names],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    offset = time.time() - time.monotonic()
    units = {}
    for name, block in zip(names, done.stdout.strip("\n").split("\n\n"), strict=False):
        fields = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        started = int(fields.get("ActiveEnterTimestampMonotonic") or 0) / 1e6
        units[name] = {
            "active": fields.get("ActiveState") in ("active", "reloading"),
            "state": fields.get("ActiveState", ""),
            "enabled": fields.get("UnitFileState") in ("enabled", "static", "generated", "enabled-runtime", "alias"),
            "pid": int(fields.get("MainPID") or 0),
            "started": started + offset if started else 0.0,
            "loaded": read_text(f"{STAMPS}/{name}").strip(),
        }
    return units


def see_sessions(users: Any) -> list[str]:
    """Of these users, the ones with a process on this machine that is no job's."""
    wanted = {}
    for user in users:
        with contextlib.suppress(KeyError):
            wanted[pwd.getpwnam(user).pw_uid] = user
    if not wanted:
        return []
    return sorted({wanted[uid] for _, uid in processes(set(wanted))})


def processes(uids: set[int]) -> list[tuple[int, int]]:
    """(pid, uid) of what these users run beside their jobs: those end when Slurm is told so, or may finish. A session
    that came in by SSH beside a job (its extern step) is none of the job's own."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                uid = entry.stat().st_uid
                if uid in uids and not JOB_STEP.search(read_text(f"/proc/{entry.name}/cgroup")):
                    found.append((int(entry.name), uid))
    return found


def read_text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def read_json(path: str, missing: Any) -> Any:
    try:
        return json.loads(read_text(path))
    except ValueError:
        return missing


# --- steps


def op_file(step: dict[str, Any]) -> None:
    path = step["path"]
    data = base64.b64decode(step["b64"])
    make_parents(path)
    owner = uid_of(step["owner"])
    group = gid_of(step["group"])
    beside = f"{path}.headway-new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(beside)
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.chown(beside, owner, group)
    os.chmod(beside, step["mode"])
    os.replace(beside, path)


def uid_of(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        if name.isdigit():
            return int(name)
        raise StepFailed(f"the image has no user {name!r}") from None


def gid_of(name: str) -> int:
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        if name.isdigit():
            return int(name)
        raise StepFailed(f"the image has no group {name!r}") from None


def make_parents(path: str) -> None:
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)


def op_remove(step: dict[str, Any]) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(step["path"])


def op_managed(step: dict[str, Any]) -> None:
    """Remembers which files are Headway's, so that one which is no longer wanted is found and removed."""
    make_parents(MANAGED)
    with open(MANAGED + ".new", "w") as file:
        json.dump(step["paths"], file)
    os.replace(MANAGED + ".new", MANAGED)


def op_dir(step: dict[str, Any]) -> None:
    path, owner = step["path"], step.get("owner", "root")
    make_parents(path)
    if squatted(path, owner):  # whatever it is stays whose it is, under another name
        os.rename(path, f"{path}.not-of-{owner}-{time.time_ns()}")
    if not os.path.isdir(path):
        os.mkdir(path, 0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if squatted(path, owner):
            raise StepFailed(f"{path} was made by somebody else just now")
        os.fchown(folder, uid_of(owner), gid_of(step.get("group", "root")))
        os.fchmod(folder, step.get("mode", 0o755))
    finally:
        os.close(folder)


def squatted(path: str, owner: str | None) -> bool:
    """Whether something of somebody else's has the name of this owner's folder, where everybody may make files."""
    above = os.path.dirname(path)
    try:
        info = os.lstat(path)
        open_to_all = os.stat(above).st_mode & 0o002
    except OSError:
        return False
    if owner is None or not open_to_all:
        return False
    return not stat.S_ISDIR(info.st_mode) or info.st_uid not in (0, uid_of(owner))


def op_home(step: dict[str, Any]) -> None:
    """A home from /etc/skel, once; an existing one is left as it is."""
    path, uid = step["path"], step["uid"]
    if os.path.isdir(path):
        return
    beside = f"{path}.headway-new"
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree("/etc/skel", beside, symlinks=True)
    for folder, names, files in os.walk(beside):
        for name in [*names, *files]:
            os.lchown(os.path.join(folder, name), uid, uid)
    os.chown(beside, uid, uid)
    os.chmod(beside, 0o700)
    os.rename(beside, path)


def op_seed(step: dict[str, Any]) -> None:
    """Fills a folder from the image, once: a copy that was cut short is thrown away."""
    source, target = step["source"], step["target"]
    if os.path.isdir(target) and os.listdir(target):
        return
    beside = f"{target}.headway-new"
    shutil.rmtree(beside, ignore_errors=True)
    make_parents(target)
    run(["cp", "-a", source, beside], 120)
    if os.path.isdir(target):
        os.rmdir(target)
    os.rename(beside, target)


def op_daemon_reload(step: dict[str, Any]) -> None:  # noqa: ARG001
    run(["systemctl", "daemon-reload"], 60)


def op_units(step: dict[str, Any]) -> None:
    """`action` (start, restart, stop, reload) of `names` in one call; the stamp says what a unit has read."""
    names, action = list(step["names"]), step["action"]
    if action == "stop":
        run(["systemctl", "disable", "--now", *names], step.get("timeout_s", 90))
        return
    argv = step.get("argv") or ["systemctl", action, *names]
    try:
        run(argv, step.get("timeout_s", 90))
    except StepFailed as error:
        raise StepFailed(f"{error}{journal(names)}") from None
    os.makedirs(STAMPS, exist_ok=True)
    for name, digest in step.get("stamps", {}).items():
        with open(f"{STAMPS}/{name}", "w") as file:
            file.write(digest)


def journal(names: list[str]) -> str:
    """The last words of the first unit that would not start: one that systemd tries again is not "failed" yet."""
    states = subprocess.run(["systemctl", "is-active", *names], capture_output=True, text=True, timeout=20, check=False)
    for name, state in zip(names, states.stdout.split(), strict=False):
        if state != "active":
            # What a program said as it died may not be written down yet.
            subprocess.run(["journalctl", "--sync"], capture_output=True, timeout=20, check=False)
            said = subprocess.run(
                ["journalctl", "-u", name, "-n", "12", "--no-pager", "-o", "cat"],
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
            return f"\n{name}: {said.stdout.strip()}"
    return ""


def op_run(step: dict[str, Any]) -> None:
    run(step["argv"], step.get("timeout_s", 60), step.get("input"), step.get("ok", (0,)))


def op_wait(step: dict[str, Any]) -> None:
    """Runs argv again until it succeeds."""
    ends = time.monotonic() + step.get("timeout_s", 60)
    while True:
        try:
            run(step["argv"], 20)
            return
        except StepFailed as error:
            if time.monotonic() > ends:
                raise StepFailed(f"{step.get('message', 'gave up waiting')}: {error}") from None
        time.sleep(0.1)


def op_candidate(step: dict[str, Any]) -> None:
    """Lets the real programs read the new files in a folder of their own, before any old one is touched."""
    folder = step["folder"]
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder, mode=0o755)
    for file in step["files"]:
        op_file({**file, "path": f"{folder}/{os.path.basename(file['path'])}"})
    for argv in step["checks"]:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"},
        )
        if done.returncode != 0:
            said = (done.stderr + done.stdout).strip()[-800:]
            raise StepFailed(f"Slurm refuses the new configuration, the old one stays: {said}")
    shutil.rmtree(folder, ignore_errors=True)


def op_switch(step: dict[str, Any]) -> None:
    """New files for a running daemon: written, taken up, probed; when the probe fails the old ones come back."""
    old = {}
    for file in step["files"]:
        with contextlib.suppress(OSError), open(file["path"], "rb") as handle:
            old[file["path"]] = handle.read()
    for file in step["files"]:
        op_file(file)
    for path in step.get("remove", ()):
        op_remove({"path": path})
    try:
        op_units(step["take_up"])
        op_wait(step["probe"])
    except StepFailed as error:
        for file in step["files"]:
            if file["path"] in old:
                op_file({**file, "b64": base64.b64encode(old[file["path"]]).decode()})
        with contextlib.suppress(StepFailed):
            op_units({**step["take_up"], "action": "restart", "argv": None, "stamps": {}})
        raise StepFailed(f"the new configuration did not work, the old one is back: {error}") from None


def op_end_jobs(step: dict[str, Any]) -> None:
    """Cancels every job and waits, for a while, until Slurm has none left."""
    listing = ["squeue", "-h", "-a", "-r", "-o", "%A"]
    ends = time.monotonic() + step["timeout_s"]
    while jobs := run(listing, 30).split():
        run(["scancel", *sorted(set(jobs))[:2000]], 30, ok=(0, 1))
        if time.monotonic() > ends:
            return
        time.sleep(0.2)


def op_end_sessions(step: dict[str, Any]) -> None:
    """Ends what these users run beside their jobs: they have left."""
    for user in step["users"]:
        subprocess.run(["loginctl", "terminate-user", user], capture_output=True, timeout=30, check=False)
        with contextlib.suppress(KeyError):
            uid = pwd.getpwnam(user).pw_uid
            end_processes(uid)


def end_processes(uid: int) -> None:
    if not has_job(uid):
        at_one_stroke(uid)
    for _ in range(20):
        found = processes({uid})
        if not found:
            return
        for pid, _ in found:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)
        time.sleep(0.05)


def has_job(uid: int) -> bool:
    """Whether a job of this user runs here."""
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if entry.stat().st_uid == uid and JOB_STEP.search(read_text(f"/proc/{entry.name}/cgroup")):
                    return True
    return False


def at_one_stroke(uid: int) -> None:
    """Ends all a user runs: what forks faster than /proc can be read does not escape this."""
    child = os.fork()
    if child == 0:
        with contextlib.suppress(OSError):
            os.setresuid(uid, uid, uid)
            os.kill(-1, 9)
        os._exit(0)
    os.waitpid(child, 0)


def run(argv: list[str], timeout_s: float, text: str | None = None, ok: Any = (0,)) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, input=text or "", check=False)
    except subprocess.TimeoutExpired:
        raise StepFailed(f"{' '.join(argv)[:200]} did not end within {timeout_s} s") from None
    except OSError as error:
        raise StepFailed(f"{argv[0]}: {error.strerror}") from None
    if done.returncode not in ok:
        raise StepFailed(
            f"{' '.join(argv)[:200]} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-800:]}"
        )
    return done.stdout


def apply(steps: list[dict[str, Any]]) -> int:
    for index, step in enumerate(steps):
        began = time.monotonic()
        answer: dict[str, Any] = {"i": index, "ok": True}
        try:
            globals()["op_" + step["op"]](step)
        except StepFailed as error:
            answer = {"i": index, "ok": False, "error": str(error)}
        except (OSError, subprocess.SubprocessError) as error:
            answer = {"i": index, "ok": False, "error": f"{step.get('path', step['op'])}: {error}"}
        answer["s"] = round(time.monotonic() - began, 3)
        print(json.dumps(answer), flush=True)
        if not answer["ok"]:
            return 1
    return 0


def main() -> int:
    ask = json.loads(sys.stdin.buffer.read())
    if ask["do"] == "observe":
        print(json.dumps(observe(ask)))
        return 0
    return apply(ask["steps"])


if __name__ == "__main__":
    sys.exit(main())
