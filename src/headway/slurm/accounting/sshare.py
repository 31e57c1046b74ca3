"""Reads each account's share and usage from sshare."""

from __future__ import annotations

from dataclasses import replace

from headway.domain.machines.machine import Machine
from headway.domain.slurm.accounts import AccountShare
from headway.transport.ssh import Remote

_TIMEOUT_S = 15.0
_FIELDS = ("Account", "User", "NormShares", "EffectvUsage", "FairShare", "GrpTRESRaw")
_MINUTES_PER_HOUR = 60.0  # sshare's raw usage is in minutes


def sshare_argv() -> list[str]:
    """Returns the command whose output `parse_shares` reads."""
    return ["sshare", "--all", "--noheader", "--parsable2", f"--format={','.join(_FIELDS)}"]


async def read_shares(connections: Remote, head: Machine) -> tuple[AccountShare, ...]:
    """Returns the share and usage of each account. Raises CommandFailed or Unreachable when the controller or the
    head does not answer."""
    return parse_shares((await connections.remote(head, sshare_argv(), timeout_s=_TIMEOUT_S)).stdout)


def parse_shares(answer: str) -> tuple[AccountShare, ...]:
    """Returns the accounts below the root, sorted. sshare prints the part and use of an account as those of the account
    above it; here they are those of the cluster. The fair share of an account is the highest of its users': Fair
    Tree computes it for users only, and users with equal usage have the same."""
    found: dict[str, AccountShare] = {}
    factors: dict[str, float] = {}
    users: dict[str, dict[str, float]] = {}
    above: list[
        tuple[float, float]
    ] = []  # part and use of the accounts above a line, which is indented by their number
    for line in answer.splitlines():
        cells = line.split("|")
        if len(cells) != len(_FIELDS):
            continue
        row = dict(zip(_FIELDS, (cell.strip() for cell in cells), strict=True))
        depth = len(cells[0]) - len(cells[0].lstrip())
        account = row["Account"]
        hours = _tres(row["GrpTRESRaw"]).get("gres/gpu", 0.0) / _MINUTES_PER_HOUR
        if row["User"]:
            users.setdefault(account, {})[row["User"]] = hours
            factors[account] = max(factors.get(account, 0.0), _number(row["FairShare"]))
        elif account not in ("", "root"):
            above = above[: depth - 1]
            part, use = above[-1] if above else (1.0, 1.0)
            part, use = part * _number(row["NormShares"]), use * _number(row["EffectvUsage"])
            above.append((part, use))
            found[account] = AccountShare(account, part, use, None, hours)
    return tuple(
        replace(share, fair_share=factors.get(name), user_gpu_hours=users.get(name, {}))
        for name, share in sorted(found.items())
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _tres(text: str) -> dict[str, float]:
    """Returns the counts of "cpu=12,gres/gpu=3" by name."""
    pairs = (part.partition("=") for part in text.split(","))
    return {name: _number(value) for name, _, value in pairs if name}
