"""Images as squashfs files, one per digest, in the user's folder on shared storage. The first job that needs an image
imports it.

CACHE/sha256-HEX.sqsh          an image; it gets this name when it is complete
CACHE/.new-HEX-...             an import in progress; the next import of the image removes abandoned ones
CACHE/.lock-HEX                locked during an import
CACHE/.asked-HEX               the registry's answer to the first node of a step, for its other nodes
CACHE/.used-JOB                the images of a job, for its lineage
CACHE/.verified-HEX-KEY        the image HEX met the signature requirement KEY (signature_policy.py) when it was imported
SHARED/sha256-HEX.sqsh         an image that an administrator imported for all users; used only if root owns it
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import credentials
import signature_policy
from image_reference import Path, Registry
from messages import Failed, print_message

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
EVERYWHERE = "put it on shared storage and give its path: --container-image=/path/image.sqsh"
CONFIG = ".headway-image.json"  # in the image's root: its environment and working folder
FORGET_S = 2 * 86400
FORGET_JOBS_S = 400 * 86400
NOBODY = 65534
SKOPEO_S, UNPACK_S = 4 * 3600, 4 * 3600
_MARK = re.compile(r"\.verified-([0-9a-f]{64})-.+")
_LISTS = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")


def architecture() -> str:
    """Returns this machine's architecture as image manifests name it: amd64, arm64, or the kernel's name."""
    machine = platform.machine()
    return ARCHITECTURES.get(machine, machine)


class ImageStore:
    """The images that one user can use. `step`: name of the step, whose nodes must all get the same image ("" outside
    of a step). `own` False: root imports for all users; the programs that read the image run as the user nobody."""

    def __init__(
        self, cache: str, shared: str, environment: dict[str, str], *, step: str = "", own: bool = True
    ) -> None:
        self.cache, self.shared, self.step, self.own = cache, shared, step, own
        self.environment = environment
        self.home = environment.get("HOME") or "/"

    # ---- the requested image

    def squashfs(self, reference: Registry | Path) -> str:
        """Returns the path of the image's squashfs file. Imports the image if it is missing. Raises Failed."""
        if isinstance(reference, Path):
            return self._file(reference)
        self._make_cache()
        required = signature_policy.requirement_key(reference)
        if reference.digest and (there := self.find(reference.digest, required)):
            return there
        with tempfile.TemporaryDirectory(prefix="headway-image-") as folder:
            auth = credentials.find(folder, self.home, reference.host, reference.user, self.environment)
            digest = self._digest(reference, auth)
            there = self.find(digest, required)
            return there or self._import(reference.at(digest), digest, str(reference), auth, required)

    def _file(self, reference: Path) -> str:
        path = reference.path
        try:
            with open(path, "rb", opener=_without_waiting) as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode) and file.read(4) == b"hsqs":
                    if not self.own:
                        raise Failed(f"{path} needs no import: Slurm uses the file directly", EVERYWHERE)
                    return path
            raise Failed(f"{path} is not a squashfs image", "make one with mksquashfs, or by `enroot import`")
        except IsADirectoryError:
            return self._layout(reference)
        except OSError as error:
            raise Failed(f"there is no image {path} on this node: {error.strerror}", _where(path)) from None

    def _layout(self, reference: Path) -> str:
        index = _json(_read(os.path.join(reference.path, "index.json")), f"{reference.path} is not an OCI layout")
        rows = [row for row in index.get("manifests", []) if isinstance(row, dict)]
        named = {(row.get("annotations") or {}).get("org.opencontainers.image.ref.name", ""): row for row in rows}
        row = named.get(reference.tag) if reference.tag else rows[0] if len(rows) == 1 else named.get("latest")
        if row is None:
            raise Failed(
                f"{reference.path} holds several images or none: {', '.join(filter(None, named)) or 'no names'}",
                f"name the image: oci:{reference.path}:NAME",
            )
        digest = str(row.get("digest", ""))
        if str(row.get("mediaType")) in _LISTS:
            digest = self._choose(_blob(reference.path, digest), str(reference))
        if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
            raise Failed(f"{reference.path} is not an OCI layout: {digest[:80]!r} is no digest")
        tag = (row.get("annotations") or {}).get("org.opencontainers.image.ref.name", "")
        self._make_cache()
        return self.find(digest) or self._import(f"oci:{reference.path}:{tag}".rstrip(":"), digest, str(reference), "")

    # ---- stored images

    def find(self, digest: str, required: str = "") -> str:
        """Returns the path of the stored image of this digest, "" if it is not stored, or did not meet the signature
        requirement `required` when it was imported."""
        own, mark = self._path(digest), _mark(digest, required)
        if self.own and os.path.isfile(own) and (not mark or os.path.exists(os.path.join(self.cache, mark))):
            return own
        if not self.shared or not _roots(self.shared):
            return ""
        shared = os.path.join(self.shared, os.path.basename(own))
        return shared if _roots(shared) and (not mark or _roots(os.path.join(self.shared, mark))) else ""

    def note(self, job: str, image: str, path: str) -> None:
        """Records the image for the job's lineage. An error is ignored: the job must run without the record too."""
        with (
            contextlib.suppress(OSError),
            open(os.path.join(self.cache, f".used-{job}"), "a", encoding="utf-8") as file,
        ):
            file.write(json.dumps({"image": image, "file": path}) + "\n")

    def _path(self, digest: str) -> str:
        return os.path.join(self.cache, f"{digest.replace(':', '-')}.sqsh")

    def _make_cache(self) -> None:
        try:
            os.makedirs(self.cache, mode=0o700 if self.own else 0o755, exist_ok=True)
            info = os.lstat(self.cache)
            if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
                raise Failed(f"{self.cache} is not a folder that you own", "move it away; the next import creates it")
            above = os.path.dirname(self.cache)
            info = os.stat(above)
            others = info.st_mode & 0o002 and not info.st_mode & stat.S_ISVTX
            if others or info.st_uid not in (0, os.geteuid()):  # they could replace the cache by another folder
                raise Failed(f"other users can write to {above}: no images are stored there", f"ls -ld {above}")
            os.chmod(self.cache, 0o700 if self.own else 0o755)
        except OSError as error:
            raise Failed(
                f"the image cache {self.cache} can't be created: {error.strerror}",
                "check that the shared storage is mounted and not full",
            ) from None

    # ---- the registry

    def _digest(self, reference: Registry, auth: str) -> str:
        """Returns the digest of the image for this architecture. All nodes of a step use the first node's answer. Raises
        Failed."""
        if not self.step:
            return self._query_digest(reference, auth)
        key = hashlib.sha256(f"{self.step} {reference}".encode()).hexdigest()[:24]
        with self._locked(os.path.join(self.cache, f".asked-{key}")) as file:
            known = file.read()
            if known:
                answer = _json(known.encode(), f"{file.name} is damaged: remove it")
                if "error" in answer:
                    raise Failed(answer["error"], answer["hint"])
                return str(answer["digest"])
            try:
                digest = self._query_digest(reference, auth)
                file.write(json.dumps({"digest": digest}))
                return digest
            except Failed as error:
                file.write(json.dumps({"error": error.message, "hint": error.hint}))
                raise

    def _query_digest(self, reference: Registry, auth: str) -> str:
        raw = self._skopeo(["inspect", "--raw", *_auth(auth), reference.name], str(reference), auth)
        manifest = _json(raw, f"the registry's answer about {reference} is no manifest")
        if "manifests" in manifest:
            return self._choose(raw, str(reference))
        return reference.digest or f"sha256:{hashlib.sha256(raw).hexdigest()}"

    def _choose(self, raw: bytes, name: str) -> str:
        """Returns the digest for this architecture from an image index. Raises Failed."""
        wrong = f"{name}: not a list of images"
        found: dict[str, str] = {}
        try:
            for row in _json(raw, wrong).get("manifests", []):
                platform_ = row.get("platform") or {}
                if platform_.get("os", "linux") == "linux":
                    found.setdefault(str(platform_.get("architecture", "")), str(row.get("digest", "")))
        except (AttributeError, TypeError):
            raise Failed(wrong) from None
        if architecture() not in found:
            raise _other_architecture(name, ", ".join(sorted(filter(None, found))))
        return found[architecture()]

    def _skopeo(self, words: list[str], name: str, auth: str) -> bytes:
        policy = signature_policy.skopeo_options()
        argv = ["skopeo", *policy, "--override-arch", architecture(), "--override-os", "linux", *words]
        done = subprocess.run(argv, capture_output=True, timeout=SKOPEO_S, env=self._plain(), check=False)
        if done.returncode != 0:
            known = bool(auth) and credentials.knows(auth, name.split("/")[0])
            text = done.stderr.decode(errors="replace")
            raise signature_policy.refusal(name, text) or _registry_error(name, text, known, self.home)
        return done.stdout

    def _plain(self) -> dict[str, str]:
        return {**self.environment, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": tempfile.gettempdir()}

    # ---- import

    def _import(self, source: str, digest: str, name: str, auth: str, required: str = "") -> str:
        lock = os.path.join(self.cache, f".lock-{digest[7:]}")
        with self._locked(lock, f"waiting for another task's import of {name}"):
            there = self.find(digest, required)
            if there:
                return there
            self._sweep(digest)
            began = time.monotonic()
            print_message(f"importing {name}")
            draft = os.path.join(self.cache, f".new-{digest[7:]}-{os.uname().nodename}-{os.getpid()}")
            try:
                with _work() as folder:
                    self._build(folder, source, name, auth, draft, digest)
                os.replace(draft, self._path(digest))
                if required:
                    with open(os.path.join(self.cache, _mark(digest, required)), "w", encoding="utf-8"):
                        pass
            except OSError as error:
                raise _disk_error(name, str(error), error.strerror or "") from None
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(draft)
            size_mib = os.path.getsize(self._path(digest)) >> 20
            print_message(f"imported {name} in {time.monotonic() - began:.1f} s ({size_mib} MiB)")
            return self._path(digest)

    def _build(self, folder: str, source: str, name: str, auth: str, draft: str, digest: str) -> None:
        layout, bundle = os.path.join(folder, "oci"), os.path.join(folder, "bundle")
        # skopeo verifies the digest of an image from a registry, but not of one from a layout: it is verified here.
        is_layout = source.startswith("oci:")
        # Signatures are verified, not copied: a layout can't contain them.
        same = ["--preserve-digests"] if is_layout else ["--remove-signatures"]
        self._skopeo(["copy", "--quiet", *same, *_auth(auth), source, f"oci:{layout}:image"], name, auth)
        manifest, config = _image_config(layout, name)
        if is_layout and manifest != digest:
            raise Failed(
                f"{name} does not hold what it says: {digest} is {manifest}",
                "its files were changed: create the OCI layout again",
            )
        with open(os.path.join(folder, CONFIG), "w", encoding="utf-8") as file:
            json.dump(config, file)
        image = draft if self.own else os.path.join(folder, "image.sqsh")
        if not self.own:
            self._run(["chown", "-R", f"{NOBODY}:{NOBODY}", "--", folder], name, plain=False)
        self._run(["umoci", "unpack", "--rootless", "--image", f"{layout}:image", bundle], name)
        root = os.path.join(bundle, "rootfs")
        self._run(["cp", "--remove-destination", "--", os.path.join(folder, CONFIG), os.path.join(root, CONFIG)], name)
        squash = ["mksquashfs", root, image, "-noappend", "-no-progress", "-no-xattrs", "-mem", "256M"]
        squash += ["-processors", str(len(os.sched_getaffinity(0)))]
        self._run([*squash, "-comp", "zstd", "-Xcompression-level", "3"], name)
        if not self.own:
            with open(image, "rb") as made, open(draft, "xb") as final:
                shutil.copyfileobj(made, final, 1 << 20)
        os.chmod(draft, 0o600 if self.own else 0o644)

    def _run(self, argv: list[str], name: str, *, plain: bool = True) -> None:
        who: dict[str, Any] = {} if self.own or not plain else {"user": NOBODY, "group": NOBODY, "extra_groups": []}
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=UNPACK_S,
            env=self._plain(), check=False, **who,
        )  # fmt: skip
        if done.returncode != 0:
            raise _disk_error(name, done.stdout.decode(errors="replace"), argv[0], done.returncode)

    def _sweep(self, digest: str) -> None:
        """Removes the files of killed imports of this image, old temporary files of all images, and the marks of images
        that are gone. Call it under this image's lock."""
        for entry in os.scandir(self.cache):
            old = entry.name.startswith((".asked-", ".new-", ".lock-")) and _age_s(entry) > FORGET_S
            old |= entry.name.startswith(".used-") and _age_s(entry) > FORGET_JOBS_S
            verified = _MARK.fullmatch(entry.name)
            gone = verified and not os.path.exists(self._path(f"sha256:{verified[1]}"))
            if old or gone or entry.name.startswith(f".new-{digest[7:]}-"):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)

    @contextlib.contextmanager
    def _locked(self, path: str, waiting: str = "") -> Iterator[Any]:
        """Yields the file `path`, open and locked. A POSIX lock works on shared file systems too and ends with the
        process."""
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+") as file:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if waiting:
                    print_message(waiting)
                fcntl.lockf(file, fcntl.LOCK_EX)
            yield file


# ---- helper functions


@contextlib.contextmanager
def _work() -> Iterator[str]:
    """Yields a folder on the node's local disk, because unpacking writes many small files. Removes read-only content
    too."""
    folder = tempfile.mkdtemp(prefix="headway-import-")
    try:
        yield folder
    finally:
        subprocess.run(["chmod", "-R", "u+rwX", "--", folder], stderr=subprocess.DEVNULL, timeout=600, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _without_waiting(path: str, flags: int) -> int:
    """An opener for open() that does not wait for the writer of a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK)


def _mark(digest: str, required: str) -> str:
    return f".verified-{digest[7:]}-{required}" if required else ""


def _auth(path: str) -> list[str]:
    return ["--authfile", path] if path else []


def _age_s(entry: os.DirEntry[str]) -> float:
    try:
        return time.time() - entry.stat(follow_symlinks=False).st_mtime
    except OSError:
        return 0.0


def _roots(path: str) -> bool:
    """Returns whether only root can have written this file or folder."""
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return info.st_uid == 0 and not info.st_mode & 0o022 and (stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode))


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(16 << 20)
    except OSError:
        return b""


def _blob(layout: str, digest: str) -> bytes:
    return _read(os.path.join(layout, "blobs", *digest.split(":", 1))) if re.fullmatch(r"sha256:\w+", digest) else b""


def _json(text: bytes, otherwise: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise Failed(otherwise)
    return value


def _image_config(layout: str, name: str) -> tuple[str, dict[str, Any]]:
    """Returns the digest of the copied image's manifest, and its environment and working folder. Raises Failed for an
    image of another architecture."""
    wrong = f"{name} can't be read as an image"
    try:
        digest = str(_json(_read(os.path.join(layout, "index.json")), wrong)["manifests"][0]["digest"])
        manifest = _json(_blob(layout, digest), wrong)
        config = _json(_blob(layout, manifest["config"]["digest"]), wrong)
        has = str(config.get("architecture") or architecture())
        inner = dict(config.get("config") or {})
        found = {"Env": list(inner.get("Env") or []), "WorkingDir": str(inner.get("WorkingDir") or "")}
    except (LookupError, TypeError, ValueError):
        raise Failed(wrong) from None
    if has != architecture():
        raise _other_architecture(name, has)
    return digest, found


# ---- error messages

# The texts also contain names, tags, digests and ports, so a single word such as "404" is no evidence.
_UNREACHED = re.compile(
    r"no such host|connection (?:refused|reset)|(?:i/o|handshake) timeout|timeout awaiting|deadline exceeded"
    r"|network is unreachable|no route to host|dial tcp|server misbehaving"
)
_MISSING = re.compile(
    r"manifest unknown|name unknown|no such image|(?<!executable file )not found|status[^\"\n]{0,30}\b404\b"
)
_HELPER = re.compile(r"docker-credential-[\w.-]+(?=.*executable file not found)")
_LOCAL = re.compile(r"(?:open|mkdir|l?stat|write|read|create|rename|unlink|chmod|chown|remove) \S+: permission denied")


def _where(path: str) -> str:
    return f"put it on shared storage: nodes do not see every file that `ls -l {path}` shows on the login"


def _other_architecture(name: str, has: str) -> Failed:
    return Failed(
        f"{name} is for {has or 'another architecture'}; this node is {architecture()}",
        f"use an image that was built for linux/{architecture()}",
    )


def _no_room(text: str) -> bool:
    return any(words in text.lower() for words in ("no space left", "disk quota", "out of space"))


def _disk_error(name: str, text: str, program: str, code: int = 1) -> Failed:
    if _no_room(text):
        free = ", ".join(f"{place}: {_free_mib(place)} MiB free" for place in (tempfile.gettempdir(), "/scratch"))
        return Failed(
            f"the disk is full: importing {name} stopped ({free})",
            "remove files on scratch that you do not need (`du -sh ~/ /scratch/$USER`), or ask your administrator for space",
        )
    if code in (-9, 137):
        return Failed(f"importing {name} was killed: the job has too little memory", "request more, e.g. --mem=4G")
    return Failed(
        f"{name} can't be unpacked: {program}: {_last(text)}", "check that another machine can pull and run the image"
    )


def _free_mib(place: str) -> int:
    try:
        return shutil.disk_usage(place).free >> 20
    except OSError:
        return 0


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][-300:] if lines else "no error message"


def _registry_error(name: str, text: str, known: bool, home: str) -> Failed:
    low, host = text.lower(), name.split("/")[0]
    login = f"skopeo login --authfile {home}/.config/containers/auth.json {host}"
    if _no_room(low):
        return _disk_error(name, text, "skopeo")
    if _UNREACHED.search(low):
        return Failed(f"the registry {host} can't be reached from this node", "check its name and that it runs")
    if helper := _HELPER.search(text):
        return Failed(
            f"your password for {host} is kept by {helper[0]}, which this node does not have", f"log in: {login}"
        )
    refused = _LOCAL.sub("", low)
    if any(
        word in refused for word in ("unauthorized", "authentication required", "denied", "invalid username/password")
    ):
        if known:
            return Failed(
                f"the registry {host} refuses your user name and password for {name}", f"log in again: {login}"
            )
        return Failed(
            f"{name} does not exist, or the registry {host} requires a password and you have none", f"log in: {login}"
        )
    if _MISSING.search(low):
        return Failed(f"there is no image {name}", "check its name and tag")
    if "x509" in low or "certificate" in low:
        return Failed(
            f"the certificate of {host} is not trusted: {_last(text)[-160:]}",
            f"put the certificate of its authority into {home}/.config/containers/certs.d/{host}/ca.crt",
        )
    if "http response to https" in low:
        return Failed(f"{host} does not use TLS", "an administrator can allow it in /etc/containers/registries.conf")
    if "no image found in" in low or "architecture" in low:
        return _other_architecture(name, "")
    return Failed(f"{name} can't be fetched: {_message(text)}", "`skopeo inspect` on the login shows more")


def _message(text: str) -> str:
    found = re.findall(r'msg="(.*?)"$', text, flags=re.MULTILINE)
    return (found[-1] if found else _last(text))[-300:]
