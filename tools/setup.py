"""Installs what Headway needs on this machine, and nothing else: `make setup`, `python3 tools/setup.py --for test`.

    --for check   the virtual environment with locked dependencies, and the pages' browser libraries
    --for demo    the same, and the Debian packages for machines on this host (the default)
    --for test    the same, a browser for the pages' tests, PostgreSQL, and a container registry, unpacked under .cache

With nothing to do it ends in a fraction of a second. It needs only Python 3.11 and the standard library. Packages are
installed with apt-get, as root. Everything that is missing and can't be installed is named before the first step."""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".headway-setup"
LOG = ROOT / ".cache" / "setup.log"
LOCK = ROOT / "requirements" / "constraints.txt"
LINK = Path("/usr/local/bin/headway")
OLDEST_PYTHON = (3, 11)
PURPOSES = ("check", "demo", "test")

# Debian package -> a program that shows that it is there, however it was installed.
MACHINES = {
    "podman": "podman",
    "runc": "runc",
    "conmon": "conmon",
    "netavark": "netavark",
    "aardvark-dns": "aardvark-dns",
    "iptables": "iptables",
    "uidmap": "newuidmap",
    "mmdebstrap": "mmdebstrap",
    "openssh-client": "ssh",
}
BROWSER = {"chromium": "chromium"}
POSTGRES = {"postgresql": "initdb"}
COMPILER = {"build-essential": "gcc"}  # tests compile the stand-in for the CUDA driver
REST = {"curl": "curl", "jq": "jq"}  # tests run the commands of the page about the REST API
QUOTAS = {"user-mode-linux": "linux.uml", "xfsprogs": "mkfs.xfs"}  # a kernel with quotas, and a file system for it
# prevents the package from creating and starting a server
NO_CLUSTER = Path("/etc/postgresql-common/createcluster.conf")
REGISTRY = "docker-registry"  # installing it would start a service, so it is only unpacked
REGISTRY_FOLDER = ROOT / ".cache" / REGISTRY
PROGRAM_FOLDERS = ("/usr/sbin", "/sbin", "/usr/lib/podman", "/usr/libexec/podman", "/usr/local/lib/podman")
DATABASE = Path("/usr/lib/postgresql")

# Disk space for the setup itself; that for machines and the node image is checked where they are made.
DISK_MIB = {"check": 900, "demo": 2500, "test": 3500}


@dataclass
class Report:
    """Prints one line for each step, with its seconds; with `quiet`, nothing when there was nothing to do."""

    quiet: bool
    began: float = field(default_factory=time.monotonic)
    steps: int = 0

    @contextmanager
    def step(self, name: str, doing: str) -> Iterator[None]:
        """Prints what begins immediately (it may take minutes), then how long it took."""
        started = time.monotonic()
        self.steps += 1
        print(f"{name:<10} {doing} ... ", end="", flush=True)
        try:
            yield
        except BaseException:
            print(f"failed after {time.monotonic() - started:.1f} s", flush=True)
            raise
        print(f"{time.monotonic() - started:.1f} s", flush=True)

    def end(self) -> None:
        """Prints the total."""
        if self.steps or not self.quiet:
            what = "done" if self.steps else "nothing to do"
            print(f"{'setup':<10} {what} ({time.monotonic() - self.began:.1f} s)", flush=True)


class SetupError(Exception):
    """A step failed; the message says what happened and what to do."""


def run(
    argv: Sequence[str],
    *,
    timeout_s: float = 1800,
    env: dict[str, str] | None = None,
    cwd: Path = ROOT,
    fix: str = "",
) -> None:
    """Runs a step's command with its output in the log. Raises SetupError with the end of that output, and with
    `fix`."""
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("a+", encoding="utf-8", errors="replace") as log:
        log.write(f"$ {' '.join(argv)}\n")
        log.flush()
        start = log.tell()
        try:
            code = subprocess.run(
                argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=timeout_s, check=False,
                env={**os.environ, **(env or {})},
            ).returncode  # fmt: skip
        except FileNotFoundError:
            raise SetupError(f"{argv[0]} is not installed here") from None
        except subprocess.TimeoutExpired:
            raise SetupError(f"{argv[0]} took longer than {timeout_s:.0f} s; see {LOG}") from None
        if code:
            log.seek(start)
            last = "\n".join(f"    {line}" for line in log.read().strip().splitlines()[-12:])
            words = f"{' '.join(argv[:4])} ended with {code}; its last words:\n{last}\n  all of it: {LOG}"
            raise SetupError(f"{words}\n  {fix}" if fix else words)


def there(program: str) -> bool:
    """Returns whether the program is installed."""
    folders = (*PROGRAM_FOLDERS, *map(str, DATABASE.glob("*/bin")))
    return bool(shutil.which(program) or shutil.which(program, path=":".join(folders)))


def missing_packages(purpose: str) -> list[str]:
    """Returns the Debian packages whose programs are missing."""
    wanted = {} if purpose == "check" else dict(MACHINES)
    if purpose == "test":
        wanted |= BROWSER | POSTGRES | COMPILER | REST | QUOTAS
    missing = [package for package, program in wanted.items() if not there(program)]
    if not (VENV / "bin" / "python").exists() and not can_make_venvs(sys.executable):
        missing.append("python3-venv")
    return missing


def can_make_venvs(python: str) -> bool:
    """Returns whether this Python can create virtual environments. Debian ships venv and ensurepip in a package of
    their own."""
    ran = subprocess.run([python, "-c", "import ensurepip, venv"], capture_output=True, timeout=60, check=False)
    return ran.returncode == 0


# ---- what setup can't install


def problems(purpose: str, packages: Sequence[str], room: tuple[int, int] = (0, 0)) -> tuple[list[str], list[str]]:
    """Returns (fatal, notes): all obstacles at once, with what to do about each."""
    fatal: list[str] = []
    notes: list[str] = []
    free_mib = shutil.disk_usage(ROOT).free >> 20
    if packages and os.geteuid() != 0:
        fatal.append(f"not installed: {', '.join(packages)}; run `sudo make setup`, which installs them")
    if packages and shutil.which("apt-get") is None:
        fatal.append(f"not installed: {', '.join(packages)}; install them with this system's package manager")
    if not os.access(ROOT, os.W_OK):
        fatal.append(f"{ROOT} is not writable; clone into a folder of your own, or run it through sudo")
    if free_mib < DISK_MIB[purpose] and not STAMP.exists():
        fatal.append(f"{ROOT} has {free_mib} MiB free, setup needs {DISK_MIB[purpose]} MiB; make room on that disk")
    if purpose != "check":
        for problem in host_problems(*room):
            (fatal if problem[1] else notes).append(problem[0])
    return fatal, notes


def host_problems(need_mib: int, need_disk_mib: int) -> list[tuple[str, bool]]:
    """Returns (obstacle and remedy, fatal) of what the host lacks for machines. Missing packages are left out, because
    they are installed here."""
    sys.path.insert(0, str(ROOT / "src"))
    try:
        from headway.providers.local.preflight import Probe
        from headway.providers.local.preflight import host_problems as find
    except ImportError as error:
        return [(f"this checkout is not whole: {error}; clone it again", True)]
    finally:
        sys.path.pop(0)
    found = find(need_mib, need_disk_mib, probe=Probe(which=lambda name: name))
    return [(f"{problem.what}; {problem.fix}" if problem.fix else problem.what, problem.fatal) for problem in found]


# ---- the steps


_NO_INDEX = (
    "is the package index reachable from here? pip looks where its settings say (`pip config list`, PIP_INDEX_URL);"
    "\n  then run this again: what is there already stays"
)
_NO_MIRROR = "are the Debian mirrors of /etc/apt reachable from here? then run this again: what is there already stays"


def install_packages(packages: Sequence[str]) -> None:
    """Installs the packages. Runs apt-get update only if the present package lists are missing or too old. Raises
    SetupError."""
    argv = ["apt-get", "install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", *packages]
    env = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
    if "postgresql" in packages and not NO_CLUSTER.exists():
        NO_CLUSTER.parent.mkdir(exist_ok=True)
        NO_CLUSTER.write_text("create_main_cluster = false\n")
    if any(Path("/var/lib/apt/lists").glob("*_Packages*")):
        try:
            run(argv, env=env)
            return
        except SetupError:
            pass  # outdated lists name files that no longer exist
    run(["apt-get", "update"], env=env, fix=_NO_MIRROR)
    run(argv, env=env, fix=_NO_MIRROR)


def registry_is_there() -> bool:
    """Returns whether the registry's program is installed or unpacked."""
    return there(REGISTRY) or (REGISTRY_FOLDER / "usr" / "bin" / REGISTRY).exists()


def unpack_registry() -> None:
    """Downloads and unpacks the registry. It is unpacked to a folder with another name first, so that an interrupted
    one does not count. Raises SetupError."""
    part = REGISTRY_FOLDER.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    download = ["apt-get", "download", "-o", "APT::Sandbox::User=root", REGISTRY]
    try:
        run(download, cwd=part)
    except SetupError:  # outdated lists name a version that no longer exists
        run(["apt-get", "update"], fix=_NO_MIRROR)
        run(download, cwd=part, fix=_NO_MIRROR)
    for package in part.glob("*.deb"):
        run(["dpkg-deb", "-x", str(package), str(part)])
        package.unlink()
    shutil.rmtree(REGISTRY_FOLDER, ignore_errors=True)
    part.rename(REGISTRY_FOLDER)


def inputs() -> str:
    """Returns a hash of everything that the virtual environment is made from."""
    digest = hashlib.sha256(f"{sys.version_info[:2]} {ROOT}\n".encode())
    for path in (LOCK, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def venv_is_current() -> bool:
    """Returns whether the virtual environment was made from the present inputs."""
    try:
        return STAMP.read_text().strip() == inputs() and (VENV / "bin" / "headway").exists()
    except OSError:
        return False


def make_venv(report: Report) -> None:
    """Creates the virtual environment with exactly the locked versions, each verified by its hash. Raises
    SetupError."""
    python = VENV / "bin" / "python"
    config = VENV / "pyvenv.cfg"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if config.exists() and not (VENV / "lib" / f"python{version}").is_dir():
        shutil.rmtree(VENV)  # made by another Python
    if not python.exists():
        with report.step("python", f"a virtual environment of Python {version}"):
            run([sys.executable, "-m", "venv", str(VENV)])
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--no-deps"]
    count = sum("==" in line for line in LOCK.read_text().splitlines())
    with report.step("packages", f"{count} locked Python packages"):
        run([*pip, "--require-hashes", "--requirement", str(LOCK)], fix=_NO_INDEX)
    with report.step("headway", "this checkout, editable"):
        run([*pip, "--no-build-isolation", "--editable", str(ROOT)])
    draft = STAMP.with_suffix(".new")
    draft.write_text(inputs() + "\n")
    draft.replace(STAMP)


def assets_are_current(*, dev: bool) -> bool:
    """Returns whether the browser libraries are up to date (tools/assets.py)."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import assets

        return bool(assets.up_to_date(assets.lock_digest(), dev=dev))
    finally:
        sys.path.pop(0)


def docs_are_current() -> bool:
    """Returns whether the documentation site belongs to the present docs/."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import docs

        return bool(docs.site_is_current())
    finally:
        sys.path.pop(0)


def link_command() -> str:
    """As root, puts `headway` on all users' path, unless another program has that name. Returns what was done, "" for
    nothing."""
    target = VENV / "bin" / "headway"
    if os.geteuid() != 0 or not LINK.parent.is_dir():
        return ""
    if LINK.is_symlink() and (LINK.readlink() == target or not LINK.exists()):
        if LINK.readlink() == target:
            return ""
        LINK.unlink()
    if LINK.exists() or LINK.is_symlink():
        return ""
    LINK.symlink_to(target)
    return f"{LINK} -> {target}"


@contextmanager
def alone() -> Iterator[None]:
    """Holds a lock, so that one setup at a time runs in this checkout."""
    path = ROOT / ".cache" / "setup.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def setup(purpose: str, *, quiet: bool = False, room: tuple[int, int] | None = None) -> None:
    """Runs all steps that have something to do. `room` (MiB of memory, of disk) is what will be needed next; it is
    checked even if everything is installed. Raises SetupError."""
    report = Report(quiet)
    tests = purpose != "demo"
    packages = missing_packages(purpose)
    registry = purpose == "test" and not registry_is_there()
    nothing_to_do = not packages and not registry and venv_is_current() and assets_are_current(dev=tests)
    nothing_to_do = nothing_to_do and docs_are_current()
    if nothing_to_do and room is None:
        report.end()
        return
    fatal, notes = problems(purpose, packages, room or (0, 0))
    for note in notes:
        print(f"{'note':<10} {note}")
    if fatal:
        raise SetupError("this machine lacks:\n" + "\n".join(f"  - {problem}" for problem in fatal))
    if nothing_to_do:
        report.end()
        return
    with alone():
        if packages:
            with report.step("system", f"apt-get: {' '.join(packages)}"):
                install_packages(packages)
        if registry:
            with report.step("registry", f"{REGISTRY}, for tests, in {REGISTRY_FOLDER.relative_to(ROOT)}"):
                unpack_registry()
        if not venv_is_current():
            make_venv(report)
        if not assets_are_current(dev=tests):
            with report.step("page", "its browser libraries"):
                run([str(VENV / "bin" / "python"), "tools/assets.py", *(["--dev"] if tests else [])])
        if not docs_are_current():
            with report.step("docs", "the documentation site"):
                run([str(VENV / "bin" / "python"), "tools/docs.py", "build"])
        if linked := link_command():
            print(f"{'command':<10} {linked}")
    report.end()


def main(argv: Sequence[str] | None = None) -> int:
    if sys.version_info < OLDEST_PYTHON:
        here = ".".join(map(str, sys.version_info[:2]))
        print(f"setup: Headway needs Python 3.11 or later, this is {here}", file=sys.stderr)
        print("  name another one: make setup PYTHON=python3.12", file=sys.stderr)
        return 1
    parser = argparse.ArgumentParser(description="Install what Headway needs on this machine.")
    parser.add_argument("--for", dest="purpose", choices=PURPOSES, default="demo")
    parser.add_argument("--quiet", action="store_true", help="say nothing when there is nothing to do")
    options = parser.parse_args(argv)
    try:
        setup(options.purpose, quiet=options.quiet)
    except SetupError as error:
        print(f"setup: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
