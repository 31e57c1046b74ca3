"""Makes plain Slurm configuration of Headway's: each key is kept, changed, or left out with a reason. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from headway.domain.cluster import SLURM_STATE_FOLDER
from headway.render.slurm.conf_syntax import ConfLine, format_lines, parse_lines

PLAIN_STATE_FOLDER = "/var/lib/slurm/slurmctld"  # where Debian's package has it
_HEADWAYS = ("headway", "cluster file", "plan.")  # words of comments that are true only with Headway


@dataclass(frozen=True, slots=True)
class ExportedKey:
    """What became of one key. `written`: its value in the exported file; None: it is not there."""

    file: str
    key: str
    value: str
    written: str | None
    why: str = ""
    instead: str = ""  # what a person may do about a key that was left out

    @property
    def kept(self) -> bool:
        """Returns whether the exported file has the same value."""
        return self.written == self.value


@dataclass(frozen=True, slots=True)
class _Rule:
    """`write` returns a key's value in the exported file, None to leave the key out."""

    write: Callable[[str], str | None]
    why: str
    instead: str = ""


def _left_out(why: str, instead: str = "") -> _Rule:
    return _Rule(lambda _: None, why, instead)


def _without(*words: str) -> Callable[[str], str | None]:
    return lambda value: ",".join(word for word in value.split(",") if word not in words) or None


_JWT = _left_out(
    "tokens of Headway's server, which reads through slurmrestd",
    "for slurmrestd: create a key and set AuthAltTypes and AuthAltParameters, see Slurm's page on JWT",
)
_POWER = _left_out(
    "Headway creates and deletes machines of this group", "write a ResumeProgram and SuspendProgram of your own"
)
_ADDRESS = "machines are found by name: the file hosts has the addresses"
_SLURM_CONF = {
    "slurmctldhost": _Rule(lambda value: value.partition("(")[0], _ADDRESS),
    "authalttypes": _JWT,
    "authaltparameters": _JWT,
    "clifilterplugins": _left_out("records submissions, so that Headway submits lost jobs again"),
    "statesavelocation": _Rule(
        lambda value: PLAIN_STATE_FOLDER if value == SLURM_STATE_FOLDER else value, "the folder of Debian's package"
    ),
    "slurmctldparameters": _Rule(_without("cloud_dns"), "only for machines that Headway creates"),
    "prolog": _left_out(
        "Headway's prolog checks the node, makes the job's own /tmp and fetches its secrets",
        "set Prolog to a program of your own; job_container.conf gives jobs their own /tmp",
    ),
    "epilog": _left_out("Headway's epilog removes files that the job left on the node", "set Epilog to a program of your own"),
    "tmpfs": _Rule(lambda _: "/tmp", "jobs use the node's /tmp"),
    "returntoservice": _Rule(
        lambda value: "1" if value == "0" else value,
        "Headway tests a node before it returns; without it a node that answers again is taken back",
    ),
    "slurmctldprimaryonprog": _left_out("Headway's part of the takeover by the second head"),
    **dict.fromkeys(
        ("resumeprogram", "suspendprogram", "resumefailprogram", "suspendtime", "suspendexcnodes", "suspendexcstates",
         "reconfigflags", "resumetimeout", "suspendtimeout", "resumerate", "suspendrate"), _POWER,
    ),
}  # fmt: skip
_NODE = {"state": _Rule(lambda value: "UNKNOWN" if value == "CLOUD" else value, _POWER.why)}
_SLURMDBD_CONF = {
    "authalttypes": _JWT,
    "authaltparameters": _JWT,
    "dbdaddr": _left_out(_ADDRESS),
}


def plain_slurm_conf(text: str, heading: Iterable[str], programs: Mapping[str, str]) -> tuple[str, list[ExportedKey]]:
    """Returns slurm.conf and what became of each of its keys. `programs`: key -> the site's own programs in place of
    Headway's."""
    own = {
        key.lower(): _Rule(lambda _, files=files: files, "the site's own scripts, without Headway's")  # type: ignore[misc]
        for key, files in programs.items()
    }
    return _plain("slurm.conf", text, heading, {**_SLURM_CONF, **own})


def plain_slurmdbd_conf(text: str, heading: Iterable[str]) -> tuple[str, list[ExportedKey]]:
    """Returns slurmdbd.conf and what became of each of its keys."""
    return _plain("slurmdbd.conf", text, heading, _SLURMDBD_CONF)


def plain_file(name: str, text: str, heading: Iterable[str]) -> tuple[str, list[ExportedKey]]:
    """Returns a file of Slurm's syntax in which all keys are kept, and the keys."""
    return _plain(name, text, heading, {})


def _plain(name: str, text: str, heading: Iterable[str], rules: Mapping[str, _Rule]) -> tuple[str, list[ExportedKey]]:
    lines, keys = _exported(name, parse_lines(text), rules)
    top = [*(ConfLine(comment=line) for line in heading), ConfLine()]
    return format_lines([*top, *_without_empty_sections(lines)]), keys


def _exported(
    name: str, lines: Iterable[ConfLine], rules: Mapping[str, _Rule]
) -> tuple[list[ConfLine], list[ExportedKey]]:
    found: list[ConfLine] = []
    keys: list[ExportedKey] = []
    comments: list[ConfLine] = []
    for line in lines:
        if not line.pairs:
            # A heading or an empty line ends the comments of a key.
            if line.comment and not line.comment.startswith("---"):
                comments.append(line)
            else:
                found += [*comments, line]
                comments = []
            continue
        mine = [_exported_key(name, line.first, key, value, rules) for key, value in line.pairs]
        keys += mine
        pairs = tuple((entry.key, entry.written) for entry in mine if entry.written is not None)
        if pairs:
            changed = len(line.pairs) == 1 and not mine[0].kept
            found += [] if changed else [row for row in comments if not _mentions_headway(row.comment)]
            found.append(ConfLine(pairs))
        comments = []
    return found, keys


def _exported_key(name: str, first: str, key: str, value: str, rules: Mapping[str, _Rule]) -> ExportedKey:
    known = {"nodename": _NODE, "partitionname": {}}.get(first, rules) if name == "slurm.conf" else rules
    rule = known.get(key.lower())
    if rule is None:
        return ExportedKey(name, key, value, value)
    written = rule.write(value)
    return ExportedKey(name, key, value, written, *(("", "") if written == value else (rule.why, rule.instead)))


def _mentions_headway(comment: str) -> bool:
    return any(word in comment.lower() for word in _HEADWAYS)


def _without_empty_sections(lines: list[ConfLine]) -> list[ConfLine]:
    """Returns the lines without headings that nothing follows, and without empty lines in a row or at the ends."""
    found: list[ConfLine] = []
    for number, line in enumerate(lines):
        if line.comment.startswith("---"):
            after = next((row for row in lines[number + 1 :] if row.pairs or row.comment.startswith("---")), None)
            if after is None or not after.pairs:
                continue
            found.append(ConfLine(comment=line.comment.replace("from the cluster file", "further settings")))
        elif (line != ConfLine() and not _mentions_headway(line.comment)) or (
            line == ConfLine() and found and found[-1] != line
        ):
            found.append(line)
    return found[:-1] if found and found[-1] == ConfLine() else found
