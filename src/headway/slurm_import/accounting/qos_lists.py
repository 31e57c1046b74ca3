"""Which QOS the jobs of each account and user may have at a site, and which they have by default."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headway.slurm_import.accounting.sacctmgr_files import ROOT, Accounting, SiteQos, chain, descendants

NORMAL = "normal"  # the QOS that Slurm makes itself
# Values of a QOS that say nothing (sacctmgr(1))
DEFAULTS = {
    "priority": ("0",), "gracetime": ("00:00:00", "0"), "preemptexempttime": ("00:00:00",), "preemptmode": ("cluster",),
    "usagefactor": ("1.000000", "1"), "usagethres": ("0.000000",), "limitfactor": ("0.000000", "1.000000"), "id": (),
}  # fmt: skip
_NO_LIMIT = ("name", "description", "flags", "gracetime")
# Keys of which only the section qos has fields
_OF_SECTION = (
    "priority", "preempt", "preemptmode", "usagefactor", "maxwall", "maxwalldurationperjob", "maxtres", "maxtresperjob",
)  # fmt: skip


@dataclass
class QosLists:
    """Names of QOS in lower case, by account: those that its jobs may have, and the default. `own`: a QOS that no
    other account may have, with nothing but limits that a team has; it becomes the team's."""

    allowed: dict[str, frozenset[str]] = field(default_factory=dict)
    default: dict[str, str] = field(default_factory=dict)
    own: dict[str, str] = field(default_factory=dict)


def read_qos_lists(accounting: Accounting) -> QosLists:
    """Returns the lists of the accounts below root. As in Slurm, an account without a list has that of the one above it."""
    found = QosLists()
    root = _of_root(accounting)
    for account in descendants(accounting.accounts):
        line = [one.value("qos") for one in reversed(chain(account, accounting.accounts))]
        defaults = [one.value("defaultqos") for one in chain(account, accounting.accounts)]
        allowed = frozenset({NORMAL})
        for text in (root.get("qos", ""), *line):
            allowed = listed(text, allowed)
        default = next((text.lower() for text in defaults if text), root.get("defaultqos", ""))
        found.allowed[account.account] = allowed
        found.default[account.account] = default or (next(iter(allowed)) if len(allowed) == 1 else NORMAL)
    found.own = dict(_own(accounting, found))
    return found


def listed(text: str, above: frozenset[str]) -> frozenset[str]:
    """Returns the QOS of a list of sacctmgr. `above`: those of the account above, which "+high" and "-high" change."""
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    if not names:
        return above
    if not any(name[0] in "+-" for name in names):
        return frozenset(names)
    more = {name[1:] for name in names if name[0] == "+"}
    return (above | more) - {name[1:] for name in names if name[0] == "-"}


def _of_root(accounting: Accounting) -> Mapping[str, str]:
    items = [*accounting.cluster]
    if ROOT in accounting.accounts:
        items += accounting.accounts[ROOT].keys.values()
    return {item.key.lower(): item.value.lower() for item in items}


def _own(accounting: Accounting, lists: QosLists) -> Iterator[tuple[str, str]]:
    users: dict[str, set[str]] = {}  # QOS -> accounts of the users who may have it
    chosen = {account: set(names) for account, names in lists.allowed.items()}  # account -> QOS of its jobs
    for user in accounting.users:
        for name in listed(user.value("qos"), lists.allowed.get(user.account, frozenset())):
            users.setdefault(name, set()).add(user.account)
            chosen.setdefault(user.account, set()).add(name)
    accounts: dict[str, set[str]] = {}
    for account, names in lists.allowed.items():
        for name in names:
            accounts.setdefault(name, set()).add(account)
    parents = {account.parent for account in accounting.accounts.values()}
    for account in lists.allowed:
        for name in dict.fromkeys((lists.default[account], account.lower())):
            qos = accounting.qos.get(name)
            alone = accounts.get(name) == {account} and users.get(name, {account}) == {account}
            if qos is None or name == NORMAL or not alone or _needs_section(qos):
                continue
            # A team's limits count the jobs of all QOS that it may choose, and those of the teams below it.
            if not _has_limits(qos) or (chosen[account] <= {name, NORMAL} and account not in parents):
                yield account, name
                break


def _has_limits(qos: SiteQos) -> bool:
    return any(item.value not in DEFAULTS.get(key, ()) for key, item in qos.keys.items() if key not in _NO_LIMIT)


def _needs_section(qos: SiteQos) -> bool:
    """Returns whether a QOS has what only `qos` of a cluster file has, and limits of teams do not."""
    if any(qos.value(key) not in ("", *DEFAULTS.get(key, ())) for key in _OF_SECTION):
        return True
    return qos.value("flags") not in ("", "NoDecay")
