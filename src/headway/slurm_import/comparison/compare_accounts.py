"""Accounts, QOS, fair shares and uids of both sides."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headway.clusterfile.resolve import DEFAULT_TEAM
from headway.slurm_import.comparison.differences import Context, Finding, finding
from headway.slurm_import.comparison.slurm_state import SlurmState, equal, names

_PRECISION = 0.005  # of a share: Slurm prints six digits, and shares in a cluster file are whole numbers
_ROOT, _NORMAL = "root", "normal"
# Limits of an account: key of its association, key of its QOS
_LIMITS = (
    ("GrpJobs", "GrpJobs"), ("GrpSubmit", "GrpSubmit"), ("GrpTRES", "GrpTRES"), ("GrpTRESMins", "GrpTRESMins"),
)  # fmt: skip
# Limits of a user in an account: keys of the association, of which the smaller value counts, and key of the QOS
_USER_LIMITS = (
    (("MaxJobs", "GrpJobs"), "MaxJobsPU"), (("MaxSubmit", "GrpSubmit"), "MaxSubmitPU"), (("GrpTRES",), "MaxTRESPU"),
    (("GrpTRESMins",), ""),
)  # fmt: skip
_MODE = "the site's PreemptMode of all QOS"
_NO_DECAY = "Headway's QOS of partitions count use without decay: NoDecay"


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
        yield from _one_account(context, account, team)
        for user in sorted(left & right):
            yield from _one_user(context, account, team, user)
    for team in set(_account_names(new)) - set(reasons.teams.values()):
        reason = "Headway's account of people without a team" if team == DEFAULT_TEAM else ""
        yield finding("account", team, "", "", "it is there", reason, equal=False)


def _one_account(context: Context, account: str, team: str) -> Iterator[Finding]:
    """Yields the place in the tree, the QOS and the limits of an account."""
    old, new, reasons = context.old, context.new, context.reasons
    above = old.parent(account)
    left, right = reasons.teams.get(above, above), new.parent(team)
    yield finding(
        "account", account, "ParentName", left, right, reasons.not_carried("account", above, ""), equal=left == right
    )
    own = _default_qos(old, account)
    for key, may, may_here in (
        ("QOS", _qos_names(old, account), _qos_names(new, team)),
        ("Def QOS", {own}, {_default_qos(new, team)}),
    ):
        if not _users(old, account):
            continue  # jobs have an account with users
        wanted = {reasons.qos.get(name) or (team if name == _NORMAL else name) for name in may}
        same = wanted - {team} == may_here - {team} if key == "QOS" else wanted == may_here
        lost = [
            reasons.not_carried("qos", name, "")
            for name in may
            if reasons.qos.get(name, name) not in may_here | {_NORMAL}
        ]
        reason = reasons.not_carried("account", account, key) or next((why for why in lost if why), "")
        yield finding("account", account, key, names(may), names(may_here), reason, equal=same)
    for key, of_qos in _LIMITS:
        one, other = (
            _limit(old, account, key, own * (reasons.qos.get(own) == team), of_qos),
            _limit(new, team, key, team, of_qos),
        )
        reason = reasons.not_carried("account", account, key) or reasons.not_carried("qos", own, of_qos)
        yield finding("account", account, key, one, other, reason, equal=equal(one, other))


def _one_user(context: Context, account: str, team: str, user: str) -> Iterator[Finding]:
    """Yields the limits of a user in an account, and the QOS if they are not those of the account."""
    old, new, reasons = context.old, context.new, context.reasons
    own = _default_qos(old, account)
    own = own * (reasons.qos.get(own) == team)
    for keys, of_qos in _USER_LIMITS:
        one, other = (
            _user_limit(old, account, user, keys, own, of_qos),
            _user_limit(new, team, user, keys, team, of_qos),
        )
        reason = reasons.not_carried("user", f"{account}/{user}", *keys) or reasons.not_carried(
            "account", account, keys[0]
        )
        reason = reason or reasons.not_carried("qos", own, of_qos)
        yield finding("account", f"{account}/{user}", keys[0], one, other, reason, equal=equal(one, other))
    may, may_here = _qos_names(old, account, user), _qos_names(new, team, user)
    if may != _qos_names(old, account) or may_here != _qos_names(new, team):
        wanted = {reasons.qos.get(name) or (team if name == _NORMAL else name) for name in may}
        reason = reasons.not_carried("user", f"{account}/{user}", "QOS") or reasons.not_carried(
            "account", account, "QOS"
        )
        same = wanted - {team} == may_here - {team}
        yield finding("account", f"{account}/{user}", "QOS", names(may), names(may_here), reason, equal=same)


def _account_names(state: SlurmState) -> list[str]:
    return [account for account, user in state.associations if not user and account != _ROOT]


def _users(state: SlurmState, account: str) -> set[str]:
    return {user for of, user in state.associations if of == account and user not in ("", _ROOT)}


def _qos_names(state: SlurmState, account: str, user: str = "") -> set[str]:
    return {name for name in state.associations[account, user].get("QOS", "").lower().split(",") if name}


def _default_qos(state: SlurmState, account: str) -> str:
    """Returns the QOS of an account's jobs without --qos."""
    may = _qos_names(state, account)
    given = state.associations[account, ""].get("Def QOS", "").lower()
    return given or (next(iter(may)) if len(may) == 1 else _NORMAL)


def _limit(state: SlurmState, account: str, key: str, qos: str, of_qos: str) -> str:
    """Returns a limit of an account: that of its own QOS, which replaces the account's."""
    return state.qos.get(qos, {}).get(of_qos, "") or state.associations[account, ""].get(key, "")


def _user_limit(state: SlurmState, account: str, user: str, keys: Sequence[str], qos: str, of_qos: str) -> str:
    """Returns a limit of a user in an account: that of the account's own QOS, or the smallest of the association."""
    given = [value for key in keys if (value := state.associations[account, user].get(key, ""))]
    least = min(given, key=int) if all(value.isdecimal() for value in given) and given else ",".join(given)
    return state.qos.get(qos, {}).get(of_qos, "") or least


def _qos(context: Context) -> Iterator[Finding]:
    old, new, reasons = context.old, context.new, context.reasons
    for name, row in old.qos.items():
        used = [part for part, pairs in old.partitions.items() if pairs.get("QoS", "").lower() == name]
        for part in used:
            made = new.partitions.get(reasons.partitions.get(part, part), {}).get("QoS", "")
            yield from _one_qos(context, name, row, new.qos.get(made, {}))
        here = reasons.qos.get(name, _NORMAL if name == _NORMAL else "")
        if here in reasons.teams.values():
            continue  # its limits are compared as those of the account
        if here in new.qos:
            yield from _one_qos(context, name, row, new.qos[here])
        elif not used:
            yield finding("qos", name, "", "it is there", "", reasons.not_carried("qos", name, ""), equal=False)


def _one_qos(context: Context, name: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Finding]:
    of_partition = new.get("Name", "").startswith("partition.")
    for key in sorted((old.keys() | new.keys()) - {"Name"}):
        left, right, low = old.get(key), new.get(key), key.lower()
        same = equal(left or "", right or "")
        if low == "preempt" and left and right:
            same = set(right.split(",")) == set(context.spec["qos"].get(new["Name"], {}).get("preempts", ()))
        reason = context.reasons.not_carried("qos", name, key)
        reason = (
            reason
            or _NO_DECAY * (low == "flags" and of_partition)
            or _MODE * (low == "preemptmode" and left == "cluster")
        )
        if not reason and None in (left, right):
            reason = context.version_reason(left, right)
        yield finding("qos", name, key, left or "", right or "", reason, equal=same)


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
    reasons = context.reasons
    why = [
        reasons.not_carried("user", f"{account}/{user}", "fairshare") or reasons.not_carried("user", user, "")
        for user in one
    ]
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
