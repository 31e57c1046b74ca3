"""Loads a cluster file into the self-contained Document that the server accepts: with keys, absolute paths and the user's
catalogue."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headway import paths
from headway.errors import CLUSTER_FILE, Fault, InvalidSpec, NotFound, Refused
from headway.schemas.clusters import Document
from headway.system_user import acting_as, user_behind_sudo
from headway.validation.error_paths import path_text
from headway.validation.ssh_keys import looks_like_path, looks_private
from headway.validation.syntax_rules import MAX_SCRIPT
from headway.validation.yaml_parser import LARGEST_BYTES, parse_yaml

CATALOGUE_FILE = "catalogue.yaml"
KEY_NAME = "id_ed25519"
LARGEST_KEY = 64 * 1024


def load_document(
    file: Path | str,
    *,
    config_dir: Path | None = None,
    home: Path | None = None,
    check: Callable[[Mapping[str, Any]], Iterable[Fault]] | None = None,
) -> Document:
    """Returns the document of a cluster file. Raises InvalidSpec with every fault found here; the server checks the rest.
    `check` returns faults of the file as it was written, before anything that it names is read.

    Plans come from the user's own catalogue and from a `catalogue.yaml` in the folder of the cluster file, which comes
    first.

    Without `ssh_keys` in the file, the user's own key is added: ~/.ssh/id_ed25519.pub, else Headway's, created at first use.
    Under sudo these are root's key and the calling user's."""
    file, through_sudo, home = Path(file), home is None, home or Path.home()
    config_dir = config_dir or paths.config_dir()
    text = read_text_file(file)
    spec = parse_yaml(text)
    if check is not None and (found := list(check(spec))):
        raise InvalidSpec(found)
    folder = file.absolute().parent
    faults: list[Fault] = []
    _inline_keys(spec, "ssh_keys", folder, home, faults)
    users = spec.get("users")
    if isinstance(users, dict):
        for name, user in users.items():
            if isinstance(user, dict):
                _inline_keys(user, f"users.{name}.ssh_keys", folder, home, faults)
    _inline_repository_key(spec, folder, home, faults)
    _inline_signature_keys(spec, folder, home, faults)
    _inline_scripts(spec, folder, home, faults)
    if isinstance(spec.get("hosts"), dict):
        spec["hosts"] = _read_hosts(spec["hosts"], folder, home, faults)
    _absolute_paths(spec, folder, home)
    # Plans in the folder of the cluster file belong to it, as those of an imported site.
    catalogue = {**_catalogue(config_dir / CATALOGUE_FILE), **_catalogue(folder / CATALOGUE_FILE)}
    if faults:
        raise InvalidSpec(faults)
    if not spec.get("ssh_keys") and isinstance(spec.get("ssh_keys", []), list):
        spec["ssh_keys"] = list(
            dict.fromkeys([public_key(config_dir, home), *(_key_behind_sudo() if through_sudo else [])])
        )
    return Document(text=text, spec=spec, catalogue=catalogue)


def public_key(config_dir: Path | None = None, home: Path | None = None) -> str:
    """Returns the user's public key line. Creates a key pair for Headway if the user has none."""
    public = private_key_file(config_dir, home).with_suffix(".pub")
    return public.read_text().strip().splitlines()[0]


def _key_behind_sudo() -> list[str]:
    """Returns the public key of the user who called sudo; [] when their home can't be used."""
    user = user_behind_sudo()
    if user is None:
        return []
    home = Path(user.pw_dir)
    try:
        with acting_as(user):
            return [public_key(home / ".config" / "headway", home)]
    except (OSError, Refused, IndexError):
        return []


def private_key_file(config_dir: Path | None = None, home: Path | None = None) -> Path:
    """Returns the private key file for SSH: ~/.ssh/id_ed25519, else Headway's own in the config folder."""
    usual = (home or Path.home()) / ".ssh" / KEY_NAME
    if usual.with_suffix(".pub").is_file() and usual.is_file():
        return usual
    own = (config_dir or paths.config_dir()) / KEY_NAME
    if not own.with_suffix(".pub").is_file() or not own.is_file():
        _make_key(own)
    return own


def read_text_file(file: Path, what: str = CLUSTER_FILE) -> str:
    """Returns the text of a file that the user named; `what` describes it in messages. Raises NotFound, Refused, InvalidSpec."""
    try:
        return _read(file).decode("utf-8")
    except FileNotFoundError:
        raise NotFound(f"{file} does not exist", hint="create one with headway init") from None
    except IsADirectoryError:
        raise Refused(f"{file} is a folder", hint=f"name {what}") from None
    except UnicodeDecodeError:
        raise InvalidSpec([Fault("", f"{file} is not UTF-8 text", f"name {what}")], what) from None
    except OSError as error:
        raise Refused(f"{file} can't be read: {error.strerror}") from None


def _read(file: Path) -> bytes:
    """Returns at most LARGEST_BYTES + 1 bytes (/dev/zero has no end); does not block on a pipe without a writer."""
    handle = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as source:
        try:
            first = os.read(handle, LARGEST_BYTES + 1)
        except BlockingIOError:  # the pipe has a writer, as in `headway plan <(...)`
            first = b""
        else:
            if not first and stat.S_ISFIFO(os.fstat(handle).st_mode):
                raise Refused(f"{file} is a pipe without a writer", hint="name the cluster file")
        os.set_blocking(handle, True)
        return first + source.read(max(0, LARGEST_BYTES + 1 - len(first)))


def _inline_keys(holder: dict[str, Any], path: str, folder: Path, home: Path, faults: list[Fault]) -> None:
    """Replaces paths of key files by the keys in them. Other values are left for the server to check."""
    keys = holder.get("ssh_keys")
    if not isinstance(keys, list):
        return
    found: list[Any] = []
    for index, key in enumerate(keys):
        if isinstance(key, str) and looks_like_path(key):
            found += _keys_of(_resolve(key, folder, home), f"{path}[{index}]", faults)
        else:
            found.append(key)
    holder["ssh_keys"] = found


def _inline_repository_key(spec: dict[str, Any], folder: Path, home: Path, faults: list[Fault]) -> None:
    """Replaces the path of the key of the driver's repository by the key."""
    gpu = spec.get("gpu")
    repository = gpu.get("repository") if isinstance(gpu, dict) else None
    if isinstance(repository, dict):
        place = "gpu.repository.key", "export it with gpg --armor --export"
        _inline_key_text(repository, "key", place, folder, home, faults)


def _inline_signature_keys(spec: dict[str, Any], folder: Path, home: Path, faults: list[Fault]) -> None:
    """Replaces the paths of keys for signatures of container images by the keys."""
    containers = spec.get("containers")
    signatures = containers.get("signatures") if isinstance(containers, dict) else None
    registries = signatures.get("registries") if isinstance(signatures, dict) else None
    for scope, rule in registries.items() if isinstance(registries, dict) else ():
        if isinstance(rule, dict):
            path = path_text(("containers", "signatures", "registries", str(scope), "sigstore_key"))
            place = path, "name a file with a public key in PEM format"
            _inline_key_text(rule, "sigstore_key", place, folder, home, faults)


def _inline_key_text(
    holder: dict[str, Any], name: str, place: tuple[str, str], folder: Path, home: Path, faults: list[Fault]
) -> None:
    """Replaces the path of a key file by its text. Values of several lines are keys; other values are left for the server
    to check. `place`: path of the field, and a hint for a file that contains no key."""
    key, (path, hint) = holder.get(name), place
    if not isinstance(key, str) or "\n" in key.strip() or not key.strip():
        return
    file = _resolve(key.strip(), folder, home)
    try:
        if file.stat().st_size > LARGEST_KEY:
            raise ValueError
        text = file.read_text(encoding="utf-8")
        if "PRIVATE KEY" in text:  # it stays on this machine
            faults.append(Fault(path, f"{file} contains a private key", "name a file with the public key alone"))
        else:
            holder[name] = text
    except ValueError:
        faults.append(Fault(path, f"{file} is not a public key", hint))
    except FileNotFoundError:
        faults.append(Fault(path, f"{file} does not exist", hint))
    except OSError as error:
        faults.append(Fault(path, f"{file} can't be read: {error.strerror}"))


def _inline_scripts(spec: dict[str, Any], folder: Path, home: Path, faults: list[Fault]) -> None:
    """Replaces the files of the site's own scripts by their names and texts."""
    scripts = spec.get("scripts")
    if not isinstance(scripts, dict):
        return
    for kind, value in scripts.items():
        if isinstance(value, str):
            scripts[kind] = _script(value, f"scripts.{kind}", folder, home, faults)
        elif isinstance(value, list):
            scripts[kind] = [
                _script(item, f"scripts.{kind}[{index}]", folder, home, faults) if isinstance(item, str) else item
                for index, item in enumerate(value)
            ]


def _script(name: str, path: str, folder: Path, home: Path, faults: list[Fault]) -> Any:
    """Returns the name and text of a script; its file as given if it has a fault."""
    file = _resolve(name, folder, home)
    try:
        if file.stat().st_size > MAX_SCRIPT:
            faults.append(Fault(path, f"{file} is larger than {MAX_SCRIPT // 1024} KiB", "call a program from it"))
            return name
        text = file.read_text(encoding="utf-8")
    except ValueError:
        faults.append(Fault(path, f"{file} is not text", "name a script"))
    except OSError as error:
        faults.append(Fault(path, f"{file} can't be read: {error.strerror}", "name a file next to the cluster file"))
    else:
        if "PRIVATE KEY" not in text:
            return {"name": file.name, "text": text}
        faults.append(Fault(path, f"{file} contains a private key", "keep keys in files on the machines"))
    return name


def _keys_of(file: Path, path: str, faults: list[Fault]) -> Iterator[str]:
    try:
        if not file.is_file() and file.exists():
            faults.append(Fault(path, f"{file} is not a file", "name the public key, ending in .pub"))
            return
        if file.stat().st_size > LARGEST_KEY:
            faults.append(Fault(path, f"{file} is too large for a public key"))
            return
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        faults.append(
            Fault(path, f"{file} does not exist", "create a key pair with ssh-keygen -t ed25519, or leave ssh_keys out")
        )
        return
    except UnicodeDecodeError:
        faults.append(Fault(path, f"{file} is not a public key"))
        return
    except OSError as error:
        faults.append(Fault(path, f"{file} can't be read: {error.strerror}"))
        return
    if looks_private(text):
        faults.append(Fault(path, f"{file} is a private key", f"give the public key: {file}.pub"))
        return
    lines = [line.strip() for line in text.splitlines()]
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        faults.append(Fault(path, f"{file} contains no key"))
    yield from keys


def _read_hosts(source: dict[str, Any], folder: Path, home: Path, faults: list[Fault]) -> list[Any]:
    """Returns the hosts of a source that OpenTofu or Terraform wrote."""
    from headway.sdk.hosts_source import read_hosts  # most files list their hosts

    try:
        return read_hosts(source, folder, home)
    except InvalidSpec as error:
        faults += error.faults
        return []


def _absolute_paths(spec: dict[str, Any], folder: Path, home: Path) -> None:
    storage = spec.get("storage")
    datasets = storage.get("datasets") if isinstance(storage, dict) else None
    hosts, backup, secrets = spec.get("hosts"), spec.get("backup"), spec.get("secrets")
    munge = secrets.get("munge") if isinstance(secrets, dict) else None
    listed = [host for host in hosts if isinstance(host, dict)] if isinstance(hosts, list) else []
    jumps = [host["jump"] for host in listed if isinstance(host.get("jump"), dict)]
    own = (([backup], "to"), ([backup], "key_file"), ([munge], "file"))
    for items, name in ((datasets, "path"), (listed, "key"), (listed, "sudo_password"), (jumps, "key"), *own):
        for item in items if isinstance(items, list) else ():
            if isinstance(item, dict) and isinstance(item.get(name), str) and item[name]:
                item[name] = str(_resolve(item[name], folder, home))


def _resolve(path: str, folder: Path, home: Path) -> Path:
    """Returns an absolute path without "..": relative to the cluster file; "~" is the user's home."""
    if path == "~" or path.startswith("~/"):
        path = str(home / path[2:])
    return Path(os.path.normpath(folder / path))


def _catalogue(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"your catalogue {file} can't be read: {error}") from None
    return parse_yaml(text, f"your catalogue {file}", may_be_empty=True)


def _make_key(file: Path) -> None:
    """Creates an ed25519 key pair; the private file has mode 600 from its creation."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(private)
        file.with_suffix(".pub").write_bytes(public + b" headway\n")
    except OSError as error:
        raise Refused(
            f"no key can be stored in {file.parent}: {error.strerror}", hint="name a key in ssh_keys"
        ) from None
