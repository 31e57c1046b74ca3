"""Rules about variables that a script sets: devices that Slurm chooses, and settings of NCCL that fight the fabric."""

from __future__ import annotations

import re
from collections.abc import Iterator

from headway.lint.batch_text import BatchText
from headway.lint.findings import Finding, delete_command, replace_line
from headway.lint.resource_rules import gpus_per_node

_ALONE = re.compile(r"\s*(export\s+)?([A-Za-z_]\w*)=(\S*|\"[^\"]*\"|'[^']*')\s*(#.*)?")
# NCCL's switches that turn a fast path off.
_SLOW = {
    "NCCL_IB_DISABLE": "InfiniBand and RoCE are not used",
    "NCCL_P2P_DISABLE": "GPUs of a node copy through the host's memory",
    "NCCL_SHM_DISABLE": "ranks of a node do not use shared memory",
}


def variable_rules(text: BatchText) -> Iterator[Finding]:
    """Yields the findings about variables."""
    yield from _visible_devices(text)
    yield from _unset_variables(text)
    for command in text.commands:
        for name, value in command.assigned.items():
            line = text.lines[command.line - 1]
            alone = _ALONE.fullmatch(line.rstrip("\r"))
            if name in _SLOW and value == "1":
                yield Finding(
                    "slow-nccl", "warning", command.line, f"{name}=1: {_SLOW[name]}.",
                    "It is a setting for finding faults; left in a script it makes each training slower.",
                    delete_command(text.lines, command.line) if alone else (),
                )  # fmt: skip
            elif name in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") and re.fullmatch(r"[a-z]+[0-9][\w.-]*", value):
                fixed = line.replace(f"{name}={value}", f"{name}=${{{name}:-{value}}}", 1)
                yield Finding(
                    "fixed-interface", "note", command.line, f"{name} names the interface {value}.",
                    "A cluster sets the interface that its nodes have; a name from another cluster makes NCCL find no network.",
                    replace_line(command.line, fixed) if alone and fixed != line else (),
                )  # fmt: skip
            elif name == "NCCL_DEBUG" and value.upper() in ("INFO", "TRACE"):
                fixed = re.sub(rf"NCCL_DEBUG=(['\"]?){value}\1(?=\s|$)", "NCCL_DEBUG=WARN", line, count=1)
                yield Finding(
                    "verbose-nccl", "note", command.line, f"NCCL_DEBUG={value} writes hundreds of lines for each rank.",
                    "NCCL_DEBUG=WARN says what goes wrong.",
                    replace_line(command.line, fixed) if fixed != line else (),
                )  # fmt: skip


def _visible_devices(text: BatchText) -> Iterator[Finding]:
    """Yields a finding for GPUs chosen by number for the whole script. One that is set for one command, or several times,
    spreads programs over the job's GPUs."""
    name = "CUDA_VISIBLE_DEVICES"
    places = [command for command in text.commands if name in command.assigned]
    if len(places) != 1 or places[0].name not in ("", "export", "declare", "typeset", "readonly"):
        return
    line, value = places[0].line, places[0].assigned[name]
    numbers = value.split(",")
    gpus = gpus_per_node(text)
    if not all(number.isdigit() for number in numbers) or sorted(numbers) == [str(at) for at in range(gpus or 0)]:
        return
    yield Finding(
        "cuda-visible-devices", "warning", line, f"CUDA_VISIBLE_DEVICES is set to {value[:30]}.",
        "Slurm sets it to the GPUs of the job. Other numbers are GPUs of others, or leave some idle.",
        delete_command(text.lines, line) if _ALONE.fullmatch(text.lines[line - 1].rstrip("\r")) else (),
    )  # fmt: skip


# Variable that sbatch sets only for this option -> the options that request the same in another way, and the variable
# that is set for those, "" for none.
_ONLY_WITH = {
    "SLURM_GPUS_PER_NODE": ("gpus-per-node", ("gres", "gpus", "gpus-per-task"), "SLURM_GPUS_ON_NODE"),
    "SLURM_GPUS": ("gpus", ("gres", "gpus-per-node", "gpus-per-task"), ""),
    "SLURM_NTASKS_PER_NODE": ("ntasks-per-node", ("ntasks",), ""),
}
_REFERENCE = re.compile(r"\$(?:(SLURM_\w+)|\{(SLURM_\w+)\})")


def _unset_variables(text: BatchText) -> Iterator[Finding]:
    """Yields a finding for a variable that is empty, because sbatch sets it for another option than the script's."""
    assigned = {name for command in text.commands for name in command.assigned}
    code = "\n".join(body for _, body in text.body)
    seen: set[str] = set()
    for number, line in enumerate(text.lines[text.head_lines :], start=text.head_lines + 1):
        if line.lstrip().startswith("#"):
            continue
        for found in _REFERENCE.finditer(line):
            name = found[1] or found[2]
            option, instead, better = _ONLY_WITH.get(name, ("", (), ""))
            other = next((one for one in instead if one in text.options), None)
            if not option or other is None or option in text.options or name in assigned | seen:
                continue
            if f"--{option}" in code or (other == "gres" and gpus_per_node(text) is None):
                continue  # an srun of the script gives the option to its step
            seen.add(name)
            fixed = re.sub(rf"{name}\b", better, line) if better else line
            yield Finding(
                "unset-variable", "warning", number, f"{name} is empty: the script gives --{other}, not --{option}.",
                f"sbatch sets {name} only for --{option}."
                + (f" {better} is the number of GPUs that the job has on the node." if better else ""),
                replace_line(number, fixed) if better else (),
            )  # fmt: skip
