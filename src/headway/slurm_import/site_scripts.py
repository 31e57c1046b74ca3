"""scripts: prolog, epilog and job_submit.lua of a site, copied on request in the order in which Slurm runs them.

Not here: what Headway makes of them (`headway.render.slurm.hooks.site_scripts`)."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headway.slurm_import.conf_reader import find_files
from headway.slurm_import.verdicts import Item, Ledger

_FOLDERS = {"prolog": "prolog.d", "epilog": "epilog.d"}  # kind -> folder next to the cluster file
LUA = "job_submit.lua"
_WORD = r"(?:pass(?:word|wd|phrase)?|pwd|secret|token|(?:api|private|access|secret|auth)[_-]?key|credentials?)"
_KNOWN = (
    r"""[^\s"'$/`(){}<>|;&]"""  # a value that a script reads from elsewhere ($NAME, $(...), a path) is no secret itself
)
# Common forms only: a person reads the scripts too.
_SECRET_LINES = (
    re.compile(
        rf"""{_WORD}[0-9]*(?:_\w*)?(?<!file)(?<!path)["']?\s*[=:]\s*(?:["']?{_KNOWN}{{4}}|(["']){_KNOWN}.{{2,}}\1)""",
        re.IGNORECASE,
    ),
    re.compile(rf"""--[a-z-]*{_WORD}\s+["']?{_KNOWN}{{3}}""", re.IGNORECASE),
    re.compile(rf"""\b(?:mysql|mariadb)[a-z-]*\s(?:.*\s)?-p["']?{_KNOWN}"""),
    re.compile(rf"""(?:\buser(?:name)?=|\s-U\s*)["']?[^\s"'$%,;=]+%{_KNOWN}{{3}}"""),
    re.compile(rf"""\bsshpass\s(?:.*\s)?-p\s*["']?{_KNOWN}"""),
    re.compile(rf"""\bldap[a-z]+\s(?:.*\s)?-w\s*["']?{_KNOWN}"""),
    re.compile(rf"""\bcurl\s(?:.*\s)?(?:-[a-zA-Z]*[uU]|--(?:proxy-)?user)[\s=]*["']?[^\s:"']+:{_KNOWN}"""),
    re.compile(r"://[^/\s:@]+:[^/\s@$]+@"),
    re.compile(rf"\bBearer\s+{_KNOWN}{{8}}|\bAuthorization:\s*[A-Za-z]+\s+{_KNOWN}{{4}}", re.IGNORECASE),
    re.compile(r"\bBEGIN [A-Z ]*PRIVATE KEY\b"),
    re.compile(r"//(?:hooks\.slack\.com|[a-z0-9.-]+\.webhook\.office\.com|discord(?:app)?\.com/api/webhooks)/"),
    re.compile(r"\b(?:AKIA[0-9A-Z]{16}|gh[a-z]_\w{20}|glpat-[\w-]{20}|xox[a-z]-[\w-]{10})"),
)
_MAY_HAVE_SECRETS = "scripts are copied on request only, because they may contain secrets"
_MOVE_IT = "move it to a file on the machines, and import again"


@dataclass
class CopiedScripts:
    """The section `scripts`, the files that it names, and what became of each script of the site."""

    section: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)  # next to the cluster file -> text
    places: dict[str, str] = field(default_factory=dict)  # script of the site -> fields of the cluster file
    refused: dict[str, tuple[str, str]] = field(default_factory=dict)  # script of the site -> why, what to do

    def decide(self, path: str, item: Item, ledger: Ledger) -> bool:
        """Decides on a script as a whole; returns whether it was one of those to copy."""
        if path in self.refused:
            ledger.dropped(item, *self.refused[path])
        elif path in self.places:
            ledger.carried(item, self.places[path], "read it before you apply: members of the cluster can read it too")
        return path in self.refused or path in self.places


def leave_scripts(items: Iterable[Item], texts: Mapping[str, str], main: str) -> CopiedScripts:
    """Returns the scripts that slurm.conf names, none of them copied."""
    named = [
        (item.key.lower(), path)
        for item in items
        if item.key.lower() in _FOLDERS and item.value
        for path in find_files(texts, item.value, main)
    ]
    named += [("job_submit", path) for path in find_files(texts, LUA, main)]
    instead = "--with-scripts copies it and names it: scripts."
    return CopiedScripts(refused={path: (_MAY_HAVE_SECRETS, f"{instead}{kind}") for kind, path in named})


def copy_scripts(
    items: Iterable[Item], texts: Mapping[str, str], main: str, fault_of: Callable[[dict[str, Any]], str], ledger: Ledger
) -> CopiedScripts:  # fmt: skip
    """Returns the scripts that slurm.conf names, copied. Decides on its keys that name them. `texts`: files of the site by
    path; `main`: the path of slurm.conf; `fault_of`: what is wrong with a section `scripts`, "" for nothing."""
    copied = CopiedScripts()
    for item in items:
        kind = item.key.lower()
        if kind in _FOLDERS and item.value:
            found = list(find_files(texts, item.value, main))
            if not found:
                ledger.dropped(item, "the file was not read", "copy it by hand, and name it in scripts")
            for path in found:
                _copy(kind, path, texts[path], copied, fault_of)
            if found and all(path in copied.places for path in found):
                ledger.carried(item, f"scripts.{kind}", "after Headway's own, in the same order")
            elif found:
                ledger.dropped(item, "not all of its scripts are copied", "see the scripts below")
        elif kind == "jobsubmitplugins" and "lua" in item.value.lower().split(","):
            for path in find_files(texts, LUA, main):
                _copy("job_submit", path, texts[path], copied, fault_of)
            if "job_submit" in copied.section and item.value.lower() == "lua":
                ledger.carried(item, "scripts.job_submit")
    return copied


def _copy(
    kind: str, path: str, text: str, copied: CopiedScripts, fault_of: Callable[[dict[str, Any]], str]
) -> None:  # fmt: skip
    """Adds one script, or the reason why it can't be copied."""
    line = _secret_line(text)
    name = _file_name(kind, path, copied)
    script = {"name": posixpath.basename(name), "text": text}
    fault = fault_of({kind: script if kind == "job_submit" else [script]})
    if line:
        copied.refused[path] = (
            f"line {line} may have a password or key, which members of the cluster could read",
            _MOVE_IT,
        )
    elif fault:
        copied.refused[path] = (fault, f"correct it, copy it by hand, and name it: scripts.{kind}")
    elif kind == "job_submit":
        copied.section[kind] = name
    else:
        copied.section.setdefault(kind, []).append(name)
    if path not in copied.refused:
        copied.files[name] = text
        before = copied.places.get(path, "")
        copied.places[path] = f"{before}, scripts.{kind}" if before else f"scripts.{kind}"


def _file_name(kind: str, path: str, copied: CopiedScripts) -> str:
    if kind == "job_submit":
        return LUA
    base, name, number = posixpath.basename(path), "", 1
    while not name or name in copied.files:
        name = f"{_FOLDERS[kind]}/{base if number == 1 else f'{number}-{base}'}"
        number += 1
    return name


def _secret_line(text: str) -> int:
    """Returns the number of the first line that seems to have a secret; 0 if none has."""
    for number, line in enumerate(text.split("\n"), 1):
        if any(pattern.search(line) for pattern in _SECRET_LINES):
            return number
    return 0
