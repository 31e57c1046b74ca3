"""Rules that need a cluster: its partitions, limits, folders, environments and nodes."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from headway.lint.batch_text import BatchText
from headway.lint.findings import Finding, replace_line
from headway.lint.resource_rules import gpus_per_node

# Folders that every machine has of its own.
_SYSTEM = frozenset(
    {"bin", "boot", "dev", "environments", "etc", "lib", "lib64", "opt", "proc", "root", "run", "sbin", "srv", "sys",
     "tmp", "usr", "var"}
)  # fmt: skip
# An absolute path of at least two parts, as a word of its own or after = or a quote.
_PATH = re.compile(r"(?:(?<=[\s=\"':])|^)(/[A-Za-z0-9_][\w.+-]*)(/[\w.+%-]+)+")
_UNITS = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}
_MEMORY = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)


@dataclass(frozen=True)
class Site:
    """What lint needs to know of a cluster."""

    name: str
    partitions: tuple[str, ...]
    folders: tuple[str, ...]  # mount points of shared volumes on the nodes
    environments: Collection[str] = ()
    capped_teams: Mapping[str, str] = field(
        default_factory=dict
    )  # team of the user -> its cap: "100 GPU-hours a month"
    node_memory_mib: int = 0  # of the largest node; 0: not known


def site_rules(text: BatchText, site: Site) -> Iterator[Finding]:
    """Yields the findings that depend on the cluster."""
    yield from _partitions(text, site)
    yield from _time_under_cap(text, site)
    yield from _memory(text, site)
    yield from _modules(text, site)
    yield from _paths(text, site)


def _partitions(text: BatchText, site: Site) -> Iterator[Finding]:
    value = text.value("partition") or ""
    for name in filter(None, value.split(",")):
        if name not in site.partitions and "$" not in name:
            line = text.line_of("partition")
            near = difflib.get_close_matches(name, site.partitions, n=1, cutoff=0.6)
            fixed = text.lines[line - 1].replace(name, near[0], 1) if near else ""
            yield Finding(
                "no-partition", "error", line, f"{site.name} has no partition {name}.",
                f"It has {', '.join(site.partitions)}. sbatch refuses the script.",
                replace_line(line, fixed) if near and text.has_line("partition") else (),
            )  # fmt: skip


def _time_under_cap(text: BatchText, site: Site) -> Iterator[Finding]:
    team = text.value("account") or next(iter(site.capped_teams), "")
    if text.value("time") is None and team in site.capped_teams:
        yield Finding(
            "no-time-under-cap", "warning", text.last_directive,
            f"Without --time the whole time limit of the partition counts against team {team}: {site.capped_teams[team]}.",
            "Slurm starts a job only if its GPUs for its whole time limit fit into what is left of the cap.",
        )  # fmt: skip


def _memory(text: BatchText, site: Site) -> Iterator[Finding]:
    """Yields a finding for more memory on a node than any node has."""
    if not site.node_memory_mib:
        return
    gpus = gpus_per_node(text)
    tasks = _number(text.value("ntasks-per-node")) or 1
    cpus = tasks * (_number(text.value("cpus-per-task")) or 1)
    for name, count in (("mem", 1), ("mem-per-cpu", cpus), ("mem-per-gpu", gpus or 1)):
        wanted = _mib(text.value(name) or "") * count
        if wanted > site.node_memory_mib:
            each = f" on {count} {'CPUs' if name == 'mem-per-cpu' else 'GPUs'}" if count > 1 else ""
            yield Finding(
                "too-much-memory", "warning", text.line_of(name),
                f"--{name}={text.value(name)}{each} is {wanted / 1024:.0f} GiB on one node.",
                f"The largest node of {site.name} has {site.node_memory_mib / 1024:.0f} GiB: the job never starts.",
            )  # fmt: skip


def _modules(text: BatchText, site: Site) -> Iterator[Finding]:
    own = any(
        word.startswith("use") for command in text.commands if command.name == "module" for word in command.arguments
    )
    for command in text.commands:
        if command.name not in ("module", "ml") or own:
            continue
        words = list(command.arguments)
        if command.name == "module" and words[:1] not in (["load"], ["add"], ["try-load"]):
            continue
        for module in words[1 if command.name == "module" else 0 :]:
            name = re.split("[@/]", module)[0]
            if not module.startswith(("-", "$")) and name not in site.environments:
                has = ", ".join(sorted(site.environments)) or "none"
                yield Finding(
                    "no-module", "warning", command.line, f"{site.name} has no environment {module}.",
                    f"Its modules are its software environments: {has}. Make one: headway env add {site.name} {name} -r FILE",
                )  # fmt: skip


def _paths(text: BatchText, site: Site) -> Iterator[Finding]:
    """Yields a finding for each top folder that is neither a volume of the cluster nor a folder of the system."""
    seen: set[str] = set()
    numbers = [*(one.line for one in text.directives), *range(text.head_lines + 1, len(text.lines) + 1)]
    for number in numbers:
        line = text.lines[number - 1]
        if number > text.head_lines and line.lstrip().startswith("#"):
            continue
        for found in _PATH.finditer(line):
            path, top = found[0], found[1]
            shared = any(path == folder or path.startswith(f"{folder}/") for folder in site.folders)
            if shared or top in seen or top[1:] in _SYSTEM:
                continue
            seen.add(top)
            yield Finding(
                "no-folder", "warning", number, f"{path[:80]} is on no volume of {site.name}.",
                f"Its nodes share {', '.join(site.folders)}. Copy the files there, or add the volume to the cluster file.",
            )  # fmt: skip


def _number(text: str | None) -> int:
    return int(text) if text and text.isdigit() and len(text) < 10 else 0


def _mib(text: str) -> float:
    found = _MEMORY.fullmatch(text)
    return int(found[1][:15]) * _UNITS[found[2].upper() or "M"] if found else 0.0
