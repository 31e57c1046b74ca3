"""Finds the server: its address and token, from the environment, the state folder or the config folder."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headway import paths
from headway.errors import Refused, Unreachable
from headway.private_files import write_private

_ANSWER_S = 2.0
NO_SERVER = "no server"
_START = "headway server start"


def find_server(state_dir: Path | str | None = None) -> tuple[str, str, Callable[[], tuple[str, str]] | None]:
    """Returns (url, token, function that looks both up again; None for a single HEADWAY_URL).

    The first of: HEADWAY_URL (of several, separated by ",", the first that answers) with HEADWAY_TOKEN; the state folder's
    server; root's server that this user started through sudo; the config folder's client.json. Raises Unreachable ("no
    server", and how to start one) when there is none, Refused for an invalid address."""
    url, token = os.environ.get("HEADWAY_URL", ""), os.environ.get("HEADWAY_TOKEN", "")
    if url and state_dir is None:
        several = configured_urls() or [url]
        for one in several:
            check_address(one, token)
        token = token or _local_token(several)
        if len(several) == 1:
            return several[0], token, None

        def first() -> tuple[str, str]:
            return next((url for url in several if _accepts_connections(url)), several[0]), token

        return *first(), first
    folder = Path(state_dir) if state_dir is not None else paths.state_dir()
    chosen = state_dir is not None or "HEADWAY_STATE" in os.environ

    def find() -> tuple[str, str]:
        return (
            _local_server(folder)
            or _running_root_server(folder if chosen else paths.ROOT_STATE)
            or _configured_server()
            or _no_server(state_dir)
        )

    found_url, found_token = find()
    return found_url, found_token, find


def pinned_fingerprints(url: str) -> tuple[str, ...]:
    """Returns the fingerprints of the certificates that the server at this address may show; () if none is pinned.

    They are those of HEADWAY_FINGERPRINT for the addresses in HEADWAY_URL, of the state folder's server, of root's
    server, or of the config folder's client.json. Raises Refused for an invalid one."""
    words = os.environ.get("HEADWAY_FINGERPRINT", "")
    if words and _normalized(url) in map(_normalized, configured_urls()):
        return tuple(valid_fingerprint(word, "HEADWAY_FINGERPRINT") for word in words.split(",") if word.strip())
    known = [_json_of(paths.state_dir() / paths.SERVER_FILE)]
    known += _json_of(paths.config_dir() / paths.SUDO_FILE).values()
    found = next(filter(None, (_pin_of(one, url) for one in known)), "") or pin_of_login(url)
    return (valid_fingerprint(found, "the pinned fingerprint"),) if found else ()


def pin_of_login(url: str) -> str:
    """Returns the fingerprint that `headway login` pinned for this address, "" without one."""
    return _pin_of(_json_of(paths.config_dir() / paths.CLIENT_FILE), url)


def _pin_of(known: object, url: str) -> str:
    """Returns the fingerprint in a record of a server, "" if it is of another address."""
    if not isinstance(known, dict) or str(known.get("url", "")).rstrip("/") != url.rstrip("/"):
        return ""
    return str(known.get("fingerprint") or "")


def valid_fingerprint(text: str, what: str) -> str:
    """Returns the fingerprint in its usual form. Raises Refused, naming `what`."""
    from headway.validation.tls_fingerprint import EXAMPLE, parse_fingerprint

    try:
        return parse_fingerprint(text)
    except ValueError as error:
        raise Refused(f"{what} is not valid: {error}", hint=f"for example {EXAMPLE}") from None


def write_client_file(url: str, token: str, fingerprint: str = "") -> Path:
    """Writes the address, token and pinned certificate that commands use on this machine. Returns the file's path. Raises
    Refused."""
    file = paths.config_dir() / paths.CLIENT_FILE
    known = {"url": url, "token": token} | ({"fingerprint": fingerprint} if fingerprint else {})
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(file, json.dumps(known) + "\n")
    except OSError as error:
        raise Refused(
            f"{file} can't be written: {error.strerror}", hint="set XDG_CONFIG_HOME to a folder of your own"
        ) from None
    return file


def runs_other_code(url: str) -> bool:
    """Returns whether this state folder's server has this address and was started from other code than this process runs."""
    from headway.code_digest import code_digest

    known = _json_of(paths.state_dir() / paths.SERVER_FILE)
    return known.get("url") == url.rstrip("/") and known.get("code") != code_digest()


def configured_urls() -> list[str]:
    """Returns the addresses in HEADWAY_URL."""
    return [url.strip() for url in os.environ.get("HEADWAY_URL", "").split(",") if url.strip()]


def address_source(url: str) -> str:
    """Returns where this server's address is configured: HEADWAY_URL or the config folder's file; "" for this machine's own."""
    if _normalized(url) in map(_normalized, configured_urls()):
        return "HEADWAY_URL"
    known = _configured_server()
    return str(paths.config_dir() / paths.CLIENT_FILE) if known and _normalized(known[0]) == _normalized(url) else ""


def start_command(state_dir: Path | str | None = None) -> str:
    """Returns the command that starts this machine's server."""
    if not is_root_server(state_dir):
        return _START
    folder = state_dir or os.environ.get("HEADWAY_STATE")
    return f"sudo HEADWAY_STATE={shlex.quote(str(folder))} {_START}" if folder else f"sudo {_START}"


def is_root_server(state_dir: Path | str | None = None) -> bool:
    """Returns whether this machine's server belongs to root and was started by this user through sudo.

    This is also true when it has stopped, because only root can start it and a server of the user's own would hide
    it; but not when the user has had a server of their own."""
    folder = Path(state_dir) if state_dir is not None else paths.state_dir()
    chosen = state_dir is not None or "HEADWAY_STATE" in os.environ
    if os.geteuid() == 0 or _local_server(folder) is not None:
        return False
    root_s = folder if chosen else paths.ROOT_STATE
    return _running_root_server(root_s) is not None or (
        _known_root_server(root_s) is not None and _read_client_file(folder) == ("", "")
    )


def _accepts_connections(url: str) -> bool:
    """Returns whether the address accepts connections."""
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=_ANSWER_S).close()
    except OSError:
        return False
    return True


def check_address(url: str, token: str, what: str = "HEADWAY_URL") -> None:
    """Raises Refused for an invalid address, named `what`, or token."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        fits = False
    if not fits or not (url.isascii() and url.isprintable()):
        raise Refused(f"{what} is not a valid address: {url[:200]!r}", hint="for example http://127.0.0.1:7878")
    if not (token.isascii() and token.isprintable()):
        raise Refused(
            "HEADWAY_TOKEN is not a valid token: it has invalid characters",
            hint="create one with headway token create",
        )


def _local_server(folder: Path) -> tuple[str, str] | None:
    """Returns (url, token) of the server that runs on this state folder; None when none runs."""
    from headway.sdk.process_liveness import is_alive

    try:
        running = json.loads((folder / paths.SERVER_FILE).read_text())
        if not is_alive(int(running["pid"]), str(running.get("started", ""))):
            return None
        known = json.loads((folder / paths.CLIENT_FILE).read_text())
        return str(running["url"]), str(known["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def local_certificate(url: str) -> str:
    """Returns the certificate file of this state folder's server if it has this address, else ""."""
    try:
        running = json.loads((paths.state_dir() / paths.SERVER_FILE).read_text())
        return str(running.get("cert", "")) if running["url"] == url.rstrip("/") else ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ""


def _local_token(urls: list[str]) -> str:
    """Returns the token of this state folder's server if it is one of these; other servers must not get it."""
    known, token = _read_client_file(paths.state_dir())
    try:
        running = str(json.loads((paths.state_dir() / paths.SERVER_FILE).read_text())["url"])
    except (OSError, ValueError, KeyError, TypeError):
        running = known
    return token if {_normalized(known), _normalized(running)}.intersection(map(_normalized, urls)) else ""


def _normalized(url: str) -> str:
    """Returns the address with one spelling for all names of the loopback address."""
    return re.sub(r"//(localhost|\[::1\])(?=[:/]|$)", "//127.0.0.1", url.rstrip("/"))


def _running_root_server(folder: Path) -> tuple[str, str] | None:
    """Returns (url, token) of root's running server on this state folder, from the user's own copy of them."""
    from headway.sdk.process_liveness import is_alive

    known = _known_root_server(folder)
    try:
        if known is None or not is_alive(int(known["pid"]), str(known["started"])):
            return None
        return str(known["url"]), str(known["token"])
    except (ValueError, KeyError, TypeError):
        return None


def _known_root_server(folder: Path) -> dict[str, Any] | None:
    """Returns the user's record of root's server on this state folder, whether or not it runs."""
    try:
        known = json.loads((paths.config_dir() / paths.SUDO_FILE).read_text())[str(folder)]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return known if isinstance(known, dict) else None


def _configured_server() -> tuple[str, str] | None:
    url, token = _read_client_file(paths.config_dir())
    return (url, token) if url else None


def _no_server(state_dir: Path | str | None) -> tuple[str, str]:
    raise Unreachable(NO_SERVER, hint=start_command(state_dir))


def _json_of(file: Path) -> dict[str, Any]:
    """Returns the content of a JSON file; {} if it is missing or unreadable."""
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _read_client_file(folder: Path) -> tuple[str, str]:
    try:
        known = json.loads((folder / paths.CLIENT_FILE).read_text())
        return str(known["url"]), str(known["token"])
    except (OSError, ValueError, KeyError, TypeError):
        return "", ""
