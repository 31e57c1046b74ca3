"""Reads at run time which Debian mirror this host uses, from its apt settings."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.errors import Refused
from headway.transport.process import run_process

_SUITES = r"(?:bullseye|bookworm|trixie|forky|sid|stable|oldstable|testing|unstable)"
_MAIN = re.compile(rf"{_SUITES}(?:-updates)?")
_SECURITY = re.compile(rf"{_SUITES}(?:-security|/updates)")


@dataclass(frozen=True, slots=True)
class Mirror:
    """The mirror for an image. `lines`: one-line sources; `apt_options`: the host's proxies, and whether it accepts
    outdated lists of a frozen mirror."""

    lines: tuple[str, ...]
    apt_options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """One apt source of the host, for one suite."""

    uri: str
    suite: str
    options: str  # "[trusted=yes check-valid-until=no]", a part of it, or ""


def parse_one_line(text: str) -> Iterator[SourceEntry]:
    """Yields the entries of a sources.list that have the component main."""
    for line in text.splitlines():
        match = re.match(r"deb\s+(\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s+(.*)", line.strip())
        if match and "main" in match[4].split("#")[0].split():
            options = (match[1] or "").strip("[] ").lower().split()
            yield SourceEntry(
                match[2].rstrip("/"), match[3], _options("trusted=yes" in options, "check-valid-until=no" in options)
            )


def parse_deb822(text: str) -> Iterator[SourceEntry]:
    """Yields the enabled entries of a .sources file that have the component main."""
    for stanza in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        name = ""
        for line in stanza.splitlines():
            if line.startswith("#"):
                continue
            if line[:1] in " \t":
                fields[name] = f"{fields.get(name, '')} {line.strip()}"
            elif ":" in line:
                name, _, value = line.partition(":")
                name = name.strip().lower()
                fields[name] = value.strip()
        off = fields.get("enabled", "yes").lower() in ("no", "false", "off", "0")
        if off or "deb" not in fields.get("types", "").split() or "main" not in fields.get("components", "").split():
            continue
        frozen = fields.get("check-valid-until", "").lower() == "no"
        options = _options(fields.get("trusted", "").lower() == "yes", frozen)
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield SourceEntry(uri.rstrip("/"), suite, options)


def _options(trusted: bool, frozen: bool) -> str:
    """Returns the options for a mirror that the host trusts (`trusted`) or whose lists may be outdated (`frozen`)."""
    options = [word for word, yes in (("trusted=yes", trusted), ("check-valid-until=no", frozen)) if yes]
    return f"[{' '.join(options)}]" if options else ""


def read_sources(folder: Path = Path("/etc/apt")) -> list[SourceEntry]:
    """Returns all sources of a host, in apt's order."""
    found: list[SourceEntry] = []
    files: Iterable[Path] = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    for path in files:
        if path.is_file() and path.suffix in (".list", ".sources"):
            parse = parse_deb822 if path.suffix == ".sources" else parse_one_line
            found += parse(path.read_text(errors="replace"))
    return found


def sources_for_suite(found: Iterable[SourceEntry], suite: str) -> tuple[str, list[str]]:
    """Returns (the required source, optional further sources) for a suite, made from a host's own sources.

    Raises Refused if the host has no Debian mirror (another distribution)."""
    known = list(found)
    main = next((entry for entry in known if _MAIN.fullmatch(entry.suite)), None)
    if main is None:
        raise Refused(
            "the apt settings of this host have no Debian mirror",
            hint="add a Debian source under /etc/apt/sources.list.d; Headway's node image is Debian",
        )
    security = next((entry for entry in known if _SECURITY.fullmatch(entry.suite)), None)
    more = [_line(main, f"{suite}-updates")]
    if security is not None:
        more.append(_line(security, f"{suite}-security"))
    return _line(main, suite), more


def _line(entry: SourceEntry, suite: str) -> str:
    return " ".join(part for part in ("deb", entry.options, entry.uri, suite, "main") if part)


async def host_mirror(suite: str, *, released: bool = True) -> Mirror:
    """Returns the host's mirror for `suite`, with updates and security fixes if it has them. An unreleased suite has
    neither: fixes go into the suite itself, and the lists of its updates are outdated, so apt refuses them."""
    line, more = sources_for_suite(read_sources(), suite)
    kept = [line]
    for extra in more if released else ():
        *_, uri, name, _ = extra.split()
        if await _is_reachable(f"{uri}/dists/{name}/InRelease"):
            kept.append(extra)
    return Mirror(tuple(kept), tuple(await _acquire_options()))


async def _is_reachable(url: str) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        argv = [
            "/usr/lib/apt/apt-helper",
            "-o",
            "APT::Sandbox::User=root",
            "download-file",
            url,
            f"{folder}/file",
        ]
        return (await run_process(argv, timeout_s=60, check=False)).code == 0


_CARRIED = re.compile(r'Acquire::(https?::Proxy\b.* "[^"]+"|Check-Valid-Until "(?:false|no|0)");?')


async def _acquire_options() -> list[str]:
    ran = await run_process(["apt-config", "dump", "Acquire"], timeout_s=20, check=False)
    return [line.rstrip(";") for line in ran.stdout.splitlines() if _CARRIED.fullmatch(line)]
