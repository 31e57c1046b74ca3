"""Reads the machines of `hosts` from OpenTofu or Terraform: from the output of a command, or from a state file."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from headway.clusterfile.models.hosts import HostsSourcePart
from headway.errors import CommandFailed, Fault, HeadwayError, InvalidSpec
from headway.validation.error_paths import pydantic_faults

COMMAND_S = 120.0  # seconds; a state in a remote backend is read over the network
LARGEST_STATE = 64 * 2**20  # bytes, also of what a command prints
_KEPT_CHARACTERS = 400  # of a program's error


def read_hosts(source: Mapping[str, Any], folder: Path, home: Path) -> list[Any]:
    """Returns the list of hosts that `hosts: {from: ...}` or `hosts: {file: ...}` of a cluster file names. The command
    runs in `folder`, that of the cluster file, without a shell.

    Raises InvalidSpec if the field is wrong, the command fails or the file can't be read, or if no list of hosts is in
    what they give."""
    try:
        wanted = HostsSourcePart.model_validate(source)
    except ValidationError as error:
        faults = [fault for _, fault in pydantic_faults(error, HostsSourcePart)]
        raise InvalidSpec([Fault(_below_hosts(fault.path), fault.message, fault.hint) for fault in faults]) from None
    if wanted.from_ is not None:
        path, place, text = "hosts.from", wanted.from_, _output_of(wanted.from_, folder)
    else:
        assert wanted.file is not None  # HostsSourcePart has one of the two
        file = folder / Path(wanted.file.replace("~", str(home), 1) if wanted.file.startswith("~/") else wanted.file)
        path, place, text = "hosts.file", str(file), _text_of(file)
    return _hosts(text, wanted.output, path, place)


def _below_hosts(path: str) -> str:
    return f"hosts.{path}" if path else "hosts"


def _output_of(command: str, folder: Path) -> str:
    """Returns what the command prints to standard output."""
    # Imported late: a file that lists its hosts starts no process.
    from headway.transport.process import run_process

    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise _fault("hosts.from", f"{command!r} is not a command line: {error}", "close the quotes") from None
    if not argv:
        raise _fault("hosts.from", "names no command", 'for example "tofu output -json"')
    try:
        printed = asyncio.run(run_process(argv, timeout_s=COMMAND_S, cwd=folder, max_output=LARGEST_STATE + 1))
    except CommandFailed as error:
        if error.code == 127:
            raise _fault(
                "hosts.from", f"{argv[0]} is not installed here", "install it, or name its state in hosts.file"
            ) from None
        ended = (
            f"did not end within {COMMAND_S:.0f} s" if error.code is None else f"failed with exit status {error.code}"
        )
        said = error.stderr.strip()[-_KEPT_CHARACTERS:]
        raise _fault("hosts.from", f"{command!r} {ended}: {said}", f"run it in {folder}") from None
    except HeadwayError as error:
        raise _fault("hosts.from", error.message, error.hint) from None
    if len(printed.out) > LARGEST_STATE:
        words = f"{command!r} prints more than {LARGEST_STATE // 2**20} MiB"
        raise _fault("hosts.from", words, "give a command that prints only the outputs")
    return printed.stdout


def _text_of(file: Path) -> str:
    try:
        if file.stat().st_size > LARGEST_STATE:
            raise _fault("hosts.file", f"{file} is larger than {LARGEST_STATE // 2**20} MiB", "name a state file")
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        hint = "run tofu apply first; for a state in a remote backend use hosts.from"
        raise _fault("hosts.file", f"{file} does not exist", hint) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise _fault("hosts.file", f"{file} can't be read: {reason}", "name a state file") from None


def _hosts(text: str, output: str, path: str, place: str) -> list[Any]:
    """Returns the hosts in a list, in the JSON of all outputs, or in a state file."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise _fault(path, f"{place} gives no JSON: {text.strip()[:60]!r}", "add -json to tofu output") from None
    if isinstance(found, dict) and "encrypted_data" in found:
        raise _fault(path, f"{place} is encrypted", 'read it with hosts: {from: "tofu output -json"}')
    if isinstance(found, dict):
        outputs = found.get("outputs", found)
        if not isinstance(outputs, dict) or not isinstance(outputs.get(output), dict) or "value" not in outputs[output]:
            names = ", ".join(sorted(map(str, outputs)))[:200] if isinstance(outputs, dict) else ""
            has = f"its outputs are {names}" if names else "it has no outputs"
            hint = f'add output "{output}" with the list of machines and run tofu apply, or name another one in hosts.output'
            raise _fault(path, f"{place} has no output {output!r}; {has}", hint)
        found = outputs[output]["value"]
    if not isinstance(found, list):
        raise _fault(path, f"output {output!r} of {place} is no list", "give a list of addresses or of hosts")
    if not found:
        raise _fault(path, f"output {output!r} of {place} lists no machine", "create machines first: tofu apply")
    # An object type of OpenTofu gives null for each attribute that was left out.
    return [{k: v for k, v in host.items() if v is not None} if isinstance(host, dict) else host for host in found]


def _fault(path: str, message: str, hint: str) -> InvalidSpec:
    return InvalidSpec([Fault(path, message, hint)])
