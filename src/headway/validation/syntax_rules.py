"""Syntax rules of a cluster file: characters, names, addresses. Pure functions; `*_fault` return a fault as text, or "".

Everything that a user writes ends up in configuration files and argument lists, so the rules list what is allowed and
refuse all else."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

from headway.domain.billing.cost_settings import BY_SHARE, BY_USE, COST_CENTRE
from headway.validation.reserved_names import SYSTEM_USERS

NAME = r"[a-z][a-z0-9_-]{0,30}"
CLUSTER_NAME = r"[a-z][a-z0-9-]{0,20}"
GROUP_NAME = r"[a-z][a-z0-9]{0,11}"
USER_NAME = r"[a-z][a-z0-9_-]{0,31}"
PLAIN_TEXT = re.compile(r"[A-Za-z0-9 _@%+=:,./~-]*")
URL_TEXT = re.compile(r"[A-Za-z0-9_@%+=:,./~?&-]*")  # for URLs, which are only written to one file, as JSON

# For requirements files, which become no part of a configuration or command: printable ASCII, several lines.
REQUIREMENTS_TEXT = re.compile(r"[\t\n\x20-\x7e]*")
# Scripts of the site: lines of any characters that a file in UTF-8 can have.
SCRIPT_TEXT = re.compile(r"[\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]*")
INVOICE_TEXT = re.compile(r"[\n\x20-\x7e\xa1-\ud7ff\ue000-\U0010ffff]*")  # lines that only pages show
MAX_SCRIPT = 64 * 1024
ARMORED_TEXT = re.compile(r"[A-Za-z0-9+/=:;,.@<>() \t\r\n-]*")  # an OpenPGP key as ASCII
MAX_ARMORED = 64 * 1024
MAX_REQUIREMENTS = 1024 * 1024  # characters

_ABSOLUTE = re.compile(r"/|(/[A-Za-z0-9._@+-]+)+/?")
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*\.?|[A-Za-z0-9]")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Returns "did you mean X?" for the nearest known word, or "" if none is near."""
    folded = {name.lower(): name for name in known if not text_fault(name)}
    near = difflib.get_close_matches(word.lower()[:80], list(folded), n=1, cutoff=0.6)
    return f"did you mean {folded[near[0]]}?" if near else ""


def join_words(words: Iterable[str], last: str = "or") -> str:
    """Returns the words as a phrase: ["a", "b", "c"] gives "a, b or c"."""
    items = list(words)
    return f"{', '.join(items[:-1])} {last} {items[-1]}" if len(items) > 1 else "".join(items)


def printable(text: object, limit: int = 60) -> str:
    """Returns a user's text made safe to print: ASCII only, no control characters, limited length."""
    plain = ascii(str(text)[: limit + 1])[1:-1]
    return plain if len(plain) <= limit else f"{plain[:limit]}..."


def text_fault(text: str, allowed: re.Pattern[str] = PLAIN_TEXT) -> str:
    """Returns why this text is unfit for configuration files and argument lists, or ""."""
    if allowed.fullmatch(text):
        return ""
    if any(ord(char) < 32 or 127 <= ord(char) < 160 or char in "\u2028\u2029" for char in text):
        return "has a line break or another control character"
    bad = next(char for char in text if not allowed.fullmatch(char))
    return f"has the character {bad!a}, which is not allowed in a cluster file"


def cluster_name_fault(name: str) -> str:
    """Checks a cluster's name."""
    if re.fullmatch(CLUSTER_NAME, name):
        return ""
    return "a cluster's name is 1 to 21 lower-case letters, digits and dashes, and starts with a letter"


def group_name_fault(name: str) -> str:
    """Checks the name of a node group, which becomes part of its nodes' names."""
    if not re.fullmatch(GROUP_NAME, name):
        return "a group's name is 1 to 12 lower-case letters and digits, and starts with a letter"
    if name in ("main", "head"):
        return f"{name} is a reserved word of Headway"
    return ""


def name_fault(name: str) -> str:
    """Checks the name of a partition, team, switch or dataset."""
    if re.fullmatch(NAME, name):
        return ""
    return "a name is 1 to 31 lower-case letters, digits, dashes and underscores, and starts with a letter"


def user_name_fault(name: str) -> str:
    """Checks the name of a Linux user of the cluster."""
    if not re.fullmatch(USER_NAME, name):
        return "a user name is 1 to 32 lower-case letters, digits, dashes and underscores, and starts with a letter"
    if name in SYSTEM_USERS or name.startswith("systemd-"):
        return f"{name} is a system user or group on the machines"
    return ""


def user_name_from(login: str) -> str:
    """Returns a valid user name made from the login of another system: "root" -> "admin", "Ann.Lee" -> "ann-lee". A
    valid one stays as it is, so that ann1 and ann2 are two users."""
    if not user_name_fault(login):
        return login
    name = re.sub(r"[^a-z0-9_-]+", "-", login.lower()).lstrip("-_0123456789")[:32].rstrip("-_")
    if login == "root" or not name:
        return "admin"
    return name if not user_name_fault(name) else f"{name[:27]}-user"


def path_fault(path: str) -> str:
    """Checks an absolute path: no "..", no spaces, no character with a meaning in mount units or shells."""
    if not _ABSOLUTE.fullmatch(path):
        if not path.startswith("/"):
            return "must be an absolute path"
        return "may have only letters, digits and . _ @ + - between its slashes"
    if any(part in (".", "..") for part in path.split("/")):
        return 'may not contain "." or ".." as a folder'
    return "is too long" if len(path) > 255 else ""


def host_fault(address: str) -> str:
    """Checks an IPv4 or IPv6 address or a host name."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        # If the last label is a number, the text is an address; in host names, labels may end in a digit.
        last = address.rstrip(".").rsplit(".", 1)[-1]
        named = len(address) <= 253 and _HOST_NAME.fullmatch(address) and not last.isdigit()
        return "" if named else "is neither an address nor a host name"
    return "" if "%" not in address else "names a network interface; give the address without %INTERFACE"


def network_fault(network: str) -> str:
    """Checks an IPv4 network or address."""
    try:
        ipaddress.IPv4Network(network)
    except ValueError as error:
        return f"is not an IPv4 network: {error}" if "host bits" in str(error) else "is not an IPv4 network"
    return ""


def relay_fault(relay: str) -> str:
    """Checks "host:port"."""
    host, colon, port = relay.rpartition(":")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        return "must be host:port, for example mail.example.org:25"
    if ":" in host:
        return "can't be an IPv6 address: name the host, for example mail.example.org:25"
    return host_fault(host)


def url_fault(url: str) -> str:
    """Checks an http(s) URL with a host."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https") or not parts.hostname or not url.isprintable() or " " in url:
        return "must be a URL, for example https://example.org/alerts"
    return host_fault(parts.hostname) if port != 0 else "must be a URL with a port from 1 to 65535"


def zone_fault(name: str) -> str:
    """Checks the name of a time zone."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return f"{printable(name)} is not a time zone; give one such as Europe/Berlin or UTC"
    return ""


def shared_by_fault(rule: str) -> str:
    """Checks a rule for who pays for capacity: use, share or centre:NAME."""
    if rule in (BY_USE, BY_SHARE):
        return ""
    if not rule.startswith(COST_CENTRE):
        return "must be use, share or centre:NAME"
    return name_fault(rule.removeprefix(COST_CENTRE))


def mail_fault(address: str) -> str:
    """Checks a mail address NAME@HOST."""
    name, at, host = address.rpartition("@")
    if not at or not re.fullmatch(r"[A-Za-z0-9._%+-]{1,64}", name):
        return "must be a mail address, for example oncall@example.org"
    return host_fault(host)
