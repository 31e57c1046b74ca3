"""Builds node images with mmdebstrap, from the host's own Debian mirror. Builders wait on a lock; an unfinished image
never gets its tag."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import tempfile
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import headway
from headway.domain.operation_progress import ReportProgress
from headway.errors import CommandFailed, Refused
from headway.images.apt_mirror import Mirror, host_mirror
from headway.images.local_images import (
    DebianRelease,
    ImageInfo,
    build_lock,
    clear_cache,
    find_current_image,
    list_images,
    releases_label,
)
from headway.images.recipe import (
    BASE_REPOSITORY,
    REPOSITORY,
    Recipe,
    base_hash,
    files_folder,
    get_recipe,
    inputs_hash,
)
from headway.transport.process import run_process

_DRAFT = "headway-draft-"  # prefix of the container in whose folder a layer is made
_DISK_NEEDED_MIB = 6000  # peak use: packages, root folder, archive and podman's copy
# Files of packages that no machine needs: they would take 600 MB more. dpkg's patterns: * also matches /.
_LEFT_OUT = (
    *(f"/usr/share/{folder}/*" for folder in ("doc", "man", "info", "lintian", "bug", "doc-base", "locale")),
    "/usr/share/vim/*/lang/*",
    "/usr/share/vim/*/tutor/*",
    "/usr/share/python-babel-localedata/locale-data/*",
    # UCX for AMD's GPUs, and the compiler that only it needs
    *("/usr/lib/*/ucx/*rocm*", "/usr/lib/*/libamd_comgr.so*", "/usr/lib/*/libamdhip64.so*", "/usr/lib/*/libLLVM*"),
    "/usr/lib/cni/*",  # for podman; skopeo only shares a package with it
    "/usr/lib/libtorch-test/*",
    # MariaDB's tools for files of other engines, and for tests
    *(f"/usr/bin/{name}" for name in ("aria_*", "myisam*", "mariadb-slap", "mariadb-binlog", "mariadb-import")),
    *(f"/usr/lib/*/{name}.a" for name in ("libslurm", "libpmix", "libpython3*", "libnl-*", "libmlx5")),
    *("/usr/bin/promtool", "/usr/bin/amtool"),
)
_STILL_IN = (
    "/usr/share/man/man[1-9]/*",  # English
    "/usr/share/locale/locale.alias",
    *(f"/usr/share/python-babel-localedata/locale-data/{name}.dat" for name in ("root", "en", "en_US")),
)


async def ensure_image(name: str, report: ReportProgress | None = None, *, state_dir: Path | None = None) -> ImageInfo:
    """Returns the current image, which is built first if it is missing or its inputs changed."""
    return await find_current_image(name) or await build_image(name, report, state_dir=state_dir)


async def _report_nothing(*_: object, **__: object) -> None:
    return None


async def build_image(
    name: str, report: ReportProgress | None = None, *, state_dir: Path | None = None, update: bool = False
) -> ImageInfo:
    """Builds the image, unless it exists with the same inputs. With `update` its packages are downloaded again in today's
    versions; without newer ones the present image stays.

    Raises Refused (no root, no mmdebstrap, disk too full, no mirror) before anything is downloaded, and CommandFailed
    when a step fails. A failed build leaves nothing behind."""
    report = report or _report_nothing
    made_from = get_recipe(name)
    async with build_lock(name):
        found = await find_current_image(name)
        if found is not None and not update:
            await report("image", f"node image {found.tag} exists", done=True)
            return found
        return await _build(made_from, report, state_dir, found if update else None, update=update)


async def _build(
    made_from: Recipe, report: ReportProgress, state_dir: Path | None, before: ImageInfo | None, *, update: bool
) -> ImageInfo:
    """Builds the image. `before`: the present image, which is returned if the new one would have the same packages."""
    started = time.monotonic()
    _check_host()
    with tempfile.TemporaryDirectory(prefix="headway-image-") as snapshot:
        # The snapshot ensures that the built files are the hashed ones, even if they are edited during the build.
        folder = Path(shutil.copytree(files_folder(), Path(snapshot) / "image"))
        base = await _ensure_base(made_from, folder, report, started, update=update)
        manifest = _manifest(made_from, folder)
        tag = await _build_upper_layer(made_from, folder, base, manifest, before)
    if before is not None and not tag:
        await report("image", f"node image {before.tag} has today's packages already", done=True)
        return before
    clear_cache()
    info = next((info for info in await list_images() if info.tag == tag), None)
    if info is None:
        raise Refused(f"the image {tag} vanished right after it was built", hint="build it again")
    if state_dir is not None:
        await _keep_manifest(info, manifest, state_dir)
    seconds = time.monotonic() - started
    await report("image", f"node image {info.tag} is ready: {info.size_mib} MiB", done=True, seconds=seconds)
    return info


async def _ensure_base(made_from: Recipe, folder: Path, report: ReportProgress, started: float, *, update: bool) -> str:
    """Returns the tag of the base image, which is built if needed, and with `update` in any case."""
    tag = f"{BASE_REPOSITORY}:{made_from.name}-{base_hash(made_from.name, folder)}"
    if not update and (await run_process(["podman", "image", "exists", tag], timeout_s=30, check=False)).code == 0:
        return tag
    free_mib = shutil.disk_usage(_work_folder()).free >> 20
    if free_mib < _DISK_NEEDED_MIB:
        raise Refused(
            f"{_work_folder()} has {free_mib} MiB free, building a node image needs {_DISK_NEEDED_MIB} MiB",
            hint="free space there, or set TMPDIR to a folder with free space",
        )
    mirror = await host_mirror(made_from.image.suite, released=made_from.image.released)
    await report(
        "image",
        f"building node image {made_from.name} (Slurm {made_from.image.slurm.name}): downloads about "
        f"{made_from.image.download_mb} MB of Debian packages, takes about {made_from.image.build_s // 60 + 1} minutes, once",
    )
    work = Path(tempfile.mkdtemp(prefix="headway-image-", dir=_work_folder()))
    progress = asyncio.create_task(_report_progress(work, report, started))
    draft = f"{BASE_REPOSITORY}:draft-{made_from.name}-{os.getpid()}"
    try:
        (work / "base.tar").write_bytes(_archive(folder / "base"))
        await _bootstrap_and_import(made_from, folder, mirror, work, draft)
        await run_process(["podman", "tag", draft, tag], timeout_s=60)
    finally:
        progress.cancel()
        await run_process(["podman", "rmi", draft], timeout_s=60, check=False)
        await asyncio.to_thread(shutil.rmtree, work, True)
    return tag


async def _build_upper_layer(
    made_from: Recipe, folder: Path, base: str, manifest: dict[str, Any], before: ImageInfo | None
) -> str:
    """Builds the second layer in the folder of a container that never runs, and commits it. Adds to the manifest what the base
    was made from. Returns the image's tag; "" if `before` has the same packages."""
    named = f"{_DRAFT}{made_from.name}-"
    left = await run_process(["podman", "ps", "--all", "--quiet", "--filter", f"name=^{named}"], timeout_s=60)
    if left.stdout.split():  # left by a killed build; only one build of an image runs at a time
        await run_process(["podman", "rm", "--force", "--time", "0", *left.stdout.split()], timeout_s=60, check=False)
    container = f"{named}{os.getpid()}"
    argv = ["podman", "create", "--name", container, "--label", "headway=1", "--network", "none", base, "true"]
    await run_process(argv, timeout_s=60)
    try:
        root = (await run_process(["podman", "mount", container], timeout_s=60)).stdout.strip()
        packages, releases = _base_facts(Path(root))
        if before is not None and before.packages == packages:
            return ""
        manifest |= {"packages": packages, "debian": [asdict(one) for one in releases]}
        # Machines and `headway roll --back` know an image by its tag, so that an updated one gets another.
        tag = f"{REPOSITORY}:{made_from.name}-{manifest['hash']}{f'-{packages[:8]}' if before else ''}"
        extra = {"usr/lib/headway/manifest.json": json.dumps(manifest, indent=1).encode() + b"\n"}
        overlay = _archive(folder / "rootfs", extra)
        await run_process(["tar", "--extract", "--no-overwrite-dir", "--directory", root], timeout_s=60, input=overlay)
        await run_process([str(folder / "customize.sh"), root], timeout_s=300, env={"LC_ALL": "C.UTF-8"})
        await run_process(["podman", "umount", container], timeout_s=60)
        labels = {
            "headway.image": made_from.name,
            "headway.hash": manifest["hash"],
            "headway.slurm": made_from.image.slurm.name,
            "headway.built": manifest["built"],
            "headway.packages": packages,
            "headway.debian": releases_label(releases),
        }
        changes = [f"LABEL {key}={value}" for key, value in labels.items()]
        argv = [*(part for text in changes for part in ("--change", text)), container, tag]
        await run_process(["podman", "commit", "--quiet", *argv], timeout_s=600)
    finally:
        await run_process(["podman", "rm", "--force", "--time", "0", container], timeout_s=60, check=False)
    return tag


def _base_facts(root: Path) -> tuple[str, list[DebianRelease]]:
    """Returns the SHA-256 of the list of packages below `root`, and the states of Debian that they come from: none for a base
    that an earlier version built."""
    folder = root / "usr/lib/headway"
    releases = folder / "debian-releases"
    lines = releases.read_text().splitlines() if releases.exists() else []
    packages = hashlib.sha256((folder / "packages").read_bytes()).hexdigest()
    return packages, [DebianRelease(*line.split()) for line in lines]


def _check_host() -> None:
    if os.geteuid() != 0:
        raise Refused("building a node image needs root rights", hint="run it through sudo")
    for program in ("mmdebstrap", "podman"):
        if shutil.which(program) is None:
            raise Refused(f"{program} is not installed here", hint="make setup")


def _work_folder() -> str:
    return os.environ.get("TMPDIR") or "/var/tmp"


def _manifest(made_from: Recipe, folder: Path) -> dict[str, Any]:
    return {
        "image": made_from.name,
        "hash": inputs_hash(made_from.name, folder),
        "suite": made_from.image.suite,
        "slurm": made_from.image.slurm.name,
        "headway": headway.__version__,
        "built": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _archive(base: Path, extra: dict[str, bytes] | None = None) -> bytes:
    """Returns the files of a folder, and `extra` files, as a tar archive. All entries belong to root, whatever the owner of the
    checkout."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(p for p in base.rglob("*") if p.is_file() and "__pycache__" not in p.parts):
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            _add(archive, str(path.relative_to(base)), path.read_bytes(), mode)
        for name, content in (extra or {}).items():
            _add(archive, name, content, 0o644)
    return buffer.getvalue()


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def mmdebstrap_argv(made_from: Recipe, folder: Path, mirror: Mirror, work: Path) -> list[str]:
    """Returns the mmdebstrap command of a build, which writes the archive to stdout."""
    rules = [f"path-exclude={path}" for path in _LEFT_OUT] + [f"path-include={path}" for path in _STILL_IN]
    return [
        *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=tar", "--components=main"),
        f"--include={','.join(made_from.packages)}",
        *(f"--dpkgopt={text}" for text in (*rules, "force-unsafe-io")),
        *(f"--aptopt={text}" for text in mirror.apt_options),
        # The files come first, because MariaDB's package creates its database from its settings at installation.
        f"--essential-hook=tar-in {work}/base.tar /",
        f"--customize-hook={folder / 'debian_releases.sh'}",
        f"--customize-hook={folder / 'after_packages.sh'}",
        made_from.image.suite,
        "-",
        *mirror.lines,
    ]


async def _bootstrap_and_import(made_from: Recipe, folder: Path, mirror: Mirror, work: Path, draft: str) -> None:
    """Runs mmdebstrap | podman import: no archive on disk in between, and both processes run at once."""
    labels = ["LABEL headway=1", f"LABEL headway.base={made_from.name}"]
    changes = ['CMD ["/sbin/init"]', "STOPSIGNAL SIGRTMIN+3", *labels]
    importer = [
        "podman",
        "import",
        "--quiet",
        *(part for text in changes for part in ("--change", text)),
        "-",
        draft,
    ]
    read_end, write_end = os.pipe()
    env = {"TMPDIR": str(work), "LC_ALL": "C.UTF-8"}
    jobs = [
        asyncio.create_task(
            run_process(mmdebstrap_argv(made_from, folder, mirror, work), timeout_s=3600, env=env, stdout=write_end)
        ),
        asyncio.create_task(run_process(importer, timeout_s=3600, stdin=read_end)),
    ]
    try:
        await asyncio.gather(*jobs)
    except CommandFailed as error:
        text, hint = error.stderr, _hint_for(error.stderr)
        raise CommandFailed(error.argv[:1], error.code, _error_lines(text), where="this host", hint=hint) from error
    finally:
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)


def _hint_for(text: str) -> str:
    """Returns a hint from the output of a failed build."""
    # mmdebstrap works in TMPDIR, podman stores the image elsewhere
    if re.search(r"No space left|enough free space", text):
        return f"a disk is full, that of {_work_folder()} or that of podman: free space or set TMPDIR, then build again"
    if re.search(r"Could not resolve|Unable to connect|Failed to fetch|Connection", text):
        return "the Debian mirror of this host (/etc/apt) did not answer: check the network, then build again"
    return "run `headway image build` again"


def _error_lines(text: str) -> str:
    """Returns the error lines of a build's output, each shortened, because one may name all packages."""
    errors = [
        line if len(line) < 200 else f"{line[:200]} ..."
        for line in text.splitlines()
        if re.match(r"(E:|W: .*fail|dpkg: error|Error)", line)
    ]
    return "\n".join(errors[-6:]) or text[-600:]


_STAGES = ("fetching package lists", "downloading packages", "setting up packages", "packing the image")


async def _report_progress(work: Path, report: ReportProgress, started: float) -> None:
    """Reports the progress of a build until it is cancelled. The stage never decreases, although files vanish at the
    end of a build."""
    stage, reported_mb = -1, 0
    while True:
        now_stage, mb = await asyncio.to_thread(_build_stage, work)
        if now_stage > stage or (now_stage == stage == 1 and mb >= reported_mb + 50):
            stage, reported_mb = now_stage, mb
            text = _STAGES[stage] + (f": {mb} MB so far" if mb and stage == 1 else "")
            await report("image", text, seconds=time.monotonic() - started)
        await asyncio.sleep(1)


def _build_stage(work: Path) -> tuple[int, int]:
    """Returns (stage, MB downloaded), from the files in the build's folder."""
    size = 0
    for root in work.glob("mmdebstrap.*"):
        if (root / "usr/lib/headway/packages").exists():
            return 3, 0
        if (root / "var/lib/dpkg/info/slurmd.list").exists():
            return 2, 0
        for place in ("var/cache/apt/archives", "var/cache/apt/archives/partial"):
            with contextlib.suppress(OSError):
                size += sum(entry.stat().st_size for entry in (root / place).glob("*.deb*"))
    return (1, size // 1_000_000) if size else (0, 0)


async def _keep_manifest(info: ImageInfo, manifest: dict[str, Any], state_dir: Path) -> None:
    """Saves the manifest with every package's version in the server's state folder."""
    argv = ["podman", "image", "mount", info.tag]
    ran = await run_process(argv, timeout_s=60, check=False)
    packages = ""
    if ran.code == 0:
        with contextlib.suppress(OSError):
            packages = (Path(ran.stdout.strip()) / "usr/lib/headway/packages").read_text()
        await run_process(["podman", "image", "umount", info.tag], timeout_s=60, check=False)
    versions = dict(line.split(" ", 1) for line in packages.splitlines() if " " in line)
    folder = state_dir / "images"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{info.tag.rpartition(':')[2]}.json"
    path.write_text(json.dumps({**manifest, "id": info.id, "versions": versions}, indent=1) + "\n")
