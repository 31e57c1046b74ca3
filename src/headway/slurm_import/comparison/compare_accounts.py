"""Accounts, QOS, fair shares and uids of both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headway.clusterfile.resolve import DEFAULT_TEAM
from headway.slurm_import.comparison.differences import Context, Finding, finding
from headway.slurm_import.comparison.slurm_state import SlurmState, equal, names

_PRECISION = 0.005  # of a share: Slurm prints six digits, and shares in a cluster file are whole numbers
_ROOT = "root"
# Limits of an account: key of its association, key of its QOS ("" = an association has none)
_LIMITS = (
    ("GrpJobs", "GrpJobs"), ("GrpSubmit", "GrpSubmit"), ("GrpTRES", "GrpTRES"), ("MaxJobs", "MaxJobsPU"),
    ("MaxSubmit", "MaxSubmitPU"), ("", "MaxTRESPU"),
)  # fmt: skip
_KNOWN_QOS = {"flags": "Headway's QOS count use without decay: NoDecay"}


def findings(context: Context) -> Iterator[Finding]:
    """Yields users and limits of each account, QOS of partitions, shares, and uids."""
    old, new = context.old, context.new
    if old.associations and new.associations:
        yield from _accounts(context)
    if old.qos and new.qos:
        yield from _qos(context)
    if old.parts and new.parts:
        yield from _shares(context)
    if old.uids and new.uids:
        yield from _uids(context)


def _accounts(context: Context) -> Iterator[Finding]:
    old, new, reasons = context.old, context.new, context.reasons
    for account in _account_names(old):
        team = reasons.teams.get(account, "")
        if not team or (team, "") not in new.associations:
            verdict = reasons.of("account", account, "")
            # The verdict on an account that is a team does not say why the team is not there.
            why = verdict.why if verdict and not team else ""
            yield finding("account", account, "", "it is there", "", why, equal=False)
            continue
        left, right = _users(old, account), _users(new, team)
        lost = [reasons.not_carried("user", user, "") for user in left - right]
        reason = lost[0] if lost and all(lost) and not right - left else ""
        yield finding("account", account, "users", names(left), names(right), reason, equal=left == right)
        own = old.associations[account, ""].get("Def QOS", "")
        for key, of_qos in _LIMITS:
            one, other = _limit(old, account, key, of_qos), _limit(new, team, key, of_qos)
            reason = reasons.not_carried("account", account, key) or reasons.not_carried("qos", own, of_qos)
            yield finding("account", account, key or of_qos, one, other, reason, equal=equal(one, other))
    for team in set(_account_names(new)) - set(reasons.teams.values()):
        reason = "Headway's account of people without a team" if team == DEFAULT_TEAM else ""
        yield finding("account", team, "", "", "it is there", reason, equal=False)


def _account_names(state: SlurmState) -> list[str]:
    return [account for account, user in state.associations if not user and account != _ROOT]


def _users(state: SlurmState, account: str) -> set[str]:
    return {user for of, user in state.associations if of == account and user not in ("", _ROOT)}


def _limit(state: SlurmState, account: str, key: str, of_qos: str) -> str:
    """Returns a limit of an account: its own, or that of its default QOS."""
    row = state.associations[account, ""]
    qos = row.get("Def QOS", "") or row.get("QOS", "")
    return row.get(key, "") or state.qos.get(qos, {}).get(of_qos, "")


def _qos(context: Context) -> Iterator[Finding]:
    old, new, reasons = context.old, context.new, context.reasons
    of_accounts = {row.get("Def QOS", "") or row.get("QOS", "") for row in old.associations.values()}
    for name, row in old.qos.items():
        used = [part for part, pairs in old.partitions.items() if pairs.get("QoS", "") == name]
        for part in used:
            made = new.partitions.get(reasons.partitions.get(part, part), {}).get("QoS", "")
            yield from _one_qos(context, name, row, new.qos.get(made, {}))
        if name in new.qos and not used and name not in reasons.teams.values():
            yield from _one_qos(context, name, row, new.qos[name])
        elif not used and name not in of_accounts:
            yield finding("qos", name, "", "it is there", "", reasons.not_carried("qos", name, ""), equal=False)


def _one_qos(context: Context, name: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Finding]:
    for key in sorted((old.keys() | new.keys()) - {"Name"}):
        left, right = old.get(key), new.get(key)
        reason = context.reasons.not_carried("qos", name, key) or _KNOWN_QOS.get(key.lower(), "")
        if not reason and None in (left, right):
            reason = context.version_reason(left, right)
        yield finding("qos", name, key, left or "", right or "", reason, equal=equal(left or "", right or ""))


def _uids(context: Context) -> Iterator[Finding]:
    users = {user for _, user in context.new.associations if user not in ("", _ROOT)}
    for user in sorted(users & context.old.uids.keys()):
        left, right = context.old.uids[user], context.new.uids.get(user, "")
        reason = context.reasons.not_carried("", "", user)
        yield finding("user", user, "uid", left, right, reason, equal=left == right)


def _shares(context: Context) -> Iterator[Finding]:
    old, new, reasons = context.old, context.new, context.reasons
    teams = {account: team for account, team in reasons.teams.items() if account in old.parts and team in new.parts}
    left = _of_one({account: _own_part(old, account) for account in teams})
    right = _of_one({account: _own_part(new, team) for account, team in teams.items()})
    for account in teams:
        reason = reasons.not_carried("account", account, "fairshare")
        same = abs(left[account] - right[account]) <= _PRECISION
        yield finding(
            "share", account, "NormShares", f"{left[account]:.4f}", f"{right[account]:.4f}", reason, equal=same
        )
        yield from _user_shares(context, account, teams[account])


def _user_shares(context: Context, account: str, team: str) -> Iterator[Finding]:
    one, other = _user_parts(context.old, account), _user_parts(context.new, team)
    # The share of one user changes the parts of all.
    why = [context.reasons.not_carried("user", user, key) for user in one for key in ("fairshare", "")]
    reason = next((text for text in why if text), "")
    for user in one.keys() & other.keys():
        same = abs(one[user] - other[user]) <= _PRECISION
        values = f"{one[user]:.4f}", f"{other[user]:.4f}"
        yield finding("share", f"{account}/{user}", "NormShares", *values, reason, equal=same)


def _user_parts(state: SlurmState, account: str) -> dict[str, float]:
    return _of_one(
        {user: part for (of, user), part in state.shares.items() if of == account and user not in ("", _ROOT)}
    )


def _own_part(state: SlurmState, account: str) -> float:
    """Returns the part of the cluster that an account's own users have: accounts below it have theirs."""
    users = sum(part for (of, user), part in state.shares.items() if of == account and user)
    return state.parts[account] * (users or 1.0)


def _of_one(parts: Mapping[str, float]) -> dict[str, float]:
    """Returns the parts so that their sum is 1."""
    total = sum(parts.values()) or 1.0
    return {name: part / total for name, part in parts.items()}
