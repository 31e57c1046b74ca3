"""Finds the user's passwords for registries and gives them to skopeo as a file. They never appear in argv or messages."""

from __future__ import annotations

import base64
import json
import os
import re

from messages import Failed, print_message

FILES = (".config/containers/auth.json", ".docker/config.json")
ENROOT = ".config/enroot/.credentials"


def find(folder: str, home: str, host: str, user: str, environment: dict[str, str]) -> str:
    """Returns the path of the skopeo file with the password for this registry, or of the user's first such file, or "".
    A password in Enroot's file comes first; it is written to a file of mode 600 in `folder`."""
    login = _enroot(os.path.join(home, ENROOT), host, user, environment)
    if login:
        path = os.path.join(folder, "auth.json")
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump({"auths": {host: {"auth": base64.b64encode(login.encode()).decode()}}}, file)
        return path
    there = [path for path in (os.path.join(home, name) for name in FILES) if os.path.exists(path)]
    return next((path for path in there if knows(path, host)), there[0] if there else "")


def knows(path: str, host: str) -> bool:
    """Returns whether the file has a password or a credential helper for the registry. Raises Failed if it is not JSON."""
    try:
        config = json.loads(_read(path) or "{}")
        known = [*config.get("auths", {}), *config.get("credHelpers", {})]
        return any(name.removeprefix("https://").startswith(_names(host)) for name in known)
    except (ValueError, AttributeError, TypeError):
        raise Failed(
            f"{path} is not JSON", "correct it, or write it again with skopeo login --authfile FILE HOST"
        ) from None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read(1 << 20)
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        print_message(f"{path} can't be read ({error.__class__.__name__}) and is ignored")
        return ""


def _names(host: str) -> tuple[str, ...]:
    return ("docker.io", "index.docker.io", "auth.docker.io") if host == "docker.io" else (host,)


def _enroot(path: str, host: str, user: str, environment: dict[str, str]) -> str:
    """Returns USER:PASSWORD from lines `machine HOST login USER password PASSWORD`, or "". $NAME stands for an environment
    variable if that is set; otherwise it stays, because the user name for NGC is the word $oauthtoken."""
    words = [word for line in _read(path).splitlines() for word in _words(line)]
    rows: list[dict[str, str]] = []
    for key, value in zip(words[::2], words[1::2], strict=False):
        if key == "machine":
            rows.append({"machine": value})
        elif rows:
            rows[-1][key] = value
    for row in rows:
        if row["machine"] in _names(host) and row.get("password") and user in ("", row.get("login")):
            return ":".join(_expand(row.get(key, ""), environment) for key in ("login", "password"))
    return ""


def _words(line: str) -> list[str]:
    """Returns the words of a line. A password may contain quotes and backslashes; a quoted word may contain blanks. A
    word that begins with # starts a comment."""
    words = re.findall(r""" "[^"]*"(?!\S) | '[^']*'(?!\S) | \S+ """, line, re.VERBOSE)
    words = words[: next((place for place, word in enumerate(words) if word.startswith("#")), None)]
    return [word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "\"'" else word for word in words]


def _expand(text: str, environment: dict[str, str]) -> str:
    name = text.removeprefix("$").removeprefix("{").removesuffix("}")
    return environment.get(name, text) if text.startswith("$") else text
