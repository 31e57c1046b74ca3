"""A small sacctmgr that refuses what the real one refuses."""

from __future__ import annotations

from collections.abc import Mapping
from graphlib import TopologicalSorter

from headway.domain.slurm.accounts import Account, Accounts, Association, Qos

SETTINGS = {"GraceTime": "0", "PreemptMode": "cluster", "Priority": "0", "UsageFactor": "1.000000"}


class Sacctmgr:
    """Accounting as a few dictionaries. Every command it is given must be valid at that moment."""

    def __init__(self, start: Accounts, busy: frozenset[tuple[str, str]] = frozenset()) -> None:
        self.accounts = {a.name: a.share for a in start.accounts}
        self.parents = {a.name: a.parent for a in start.accounts}
        self.account_limits = {a.name: dict(a.limits) for a in start.accounts}
        self.members = {(a.user, a.account): a.locked for a in start.associations}
        self.default = {a.user: a.account for a in start.associations if a.default}
        self.qos = {q.name: (dict(q.limits), q.flags, dict(q.settings), q.preempts) for q in start.qos}
        self.account_qos = dict(start.account_qos)
        self.operators = set(start.operators)
        self.limits = {(a.user, a.account): dict(a.limits) for a in start.associations}
        self.user_qos = {(a.user, a.account): a.qos for a in start.associations}
        self.busy = busy

    def seen(self) -> Accounts:
        return Accounts(
            tuple(
                Account(n, s, dict(self.account_limits[n]), self.parents[n]) for n, s in sorted(self.accounts.items())
            ),
            tuple(
                Association(u, a, self.default.get(u) == a, lock, dict(self.limits[u, a]), self._own_qos(u, a))
                for (u, a), lock in sorted(self.members.items())
            ),
            tuple(Qos(n, dict(limits), *others) for n, (limits, *others) in sorted(self.qos.items())),
            tuple(sorted(self.operators)),
            dict(self.account_qos),
            self.busy,
        )

    def _own_qos(self, user: str, account: str) -> tuple[str, ...]:
        """Returns the list of a user that is not that of the account, which sacctmgr shows where a user has none."""
        names = self.user_qos[user, account]
        return () if set(names) == set(self.account_qos.get(account, ())) else names

    def run(self, argv: list[str]) -> None:
        if argv[0] == "scancel":
            user, account = (word.partition("=")[2] for word in argv[1:])
            self.busy -= {(user, account)}
            return
        assert argv[:2] == ["sacctmgr", "-i"]
        verb, what, *rest = argv[2:]
        words = dict(word.split("=", 1) for word in rest if "=" in word)
        name = words.pop("name", "") or rest[0]
        getattr(self, f"{verb}_{what}")(name, words)

    def add_qos(self, name: str, words: dict[str, str]) -> None:
        assert name not in self.qos
        assert "Preempt" not in words, "the others may not be there yet"
        self.qos[name] = ({}, (), {}, ())
        self.modify_qos(name, words)

    def modify_qos(self, name: str, words: dict[str, str]) -> None:
        limits, flags, settings, preempts = self.qos[name]
        for key in SETTINGS & words.keys():
            settings[key] = words.pop(key)
            if settings[key] == SETTINGS[key]:
                del settings[key]
        given = words.pop("Flags", ",".join(flags) or "-1")
        flags = () if given == "-1" else tuple(given.split(","))
        if "Preempt" in words:
            preempts = tuple(filter(None, words.pop("Preempt").split(",")))
            assert self.qos.keys() >= set(preempts)
        self._set_limits(limits, words)
        self.qos[name] = (limits, flags, settings, preempts)
        TopologicalSorter({name: preempts for name, (*_, preempts) in self.qos.items()}).prepare()

    def _set_limits(self, limits: dict[str, str], words: Mapping[str, str]) -> None:
        for key, value in words.items():
            if value == "-1":
                limits.pop(key, None)
            elif "=" in value:
                self._set_resources(limits, key, value)
            else:
                limits[key] = value

    def _set_resources(self, limits: dict[str, str], key: str, value: str) -> None:
        """Changes only the resources that are named, like sacctmgr."""
        parts = [part.rpartition("=") for text in (limits.pop(key, ""), value) for part in text.split(",") if part]
        left = {tres: count for tres, _, count in parts}
        if kept := [f"{tres}={count}" for tres, count in sorted(left.items()) if count != "-1"]:
            limits[key] = ",".join(kept)

    def delete_qos(self, name: str, words: dict[str, str]) -> None:
        """Removes it from all lists, like sacctmgr, which refuses it only as a default."""
        assert not any(names[0] == name for names in self.account_qos.values())
        del self.qos[name]
        self.account_qos = {a: tuple(one for one in names if one != name) for a, names in self.account_qos.items()}
        self.user_qos = {a: tuple(one for one in names if one != name) for a, names in self.user_qos.items()}
        for other, (*most, preempts) in list(self.qos.items()):
            self.qos[other] = (*most, tuple(one for one in preempts if one != name))

    def add_account(self, name: str, words: dict[str, str]) -> None:
        assert name not in self.accounts
        self.account_limits[name] = {}
        self.modify_account(name, words)

    def modify_account(self, name: str, words: dict[str, str]) -> None:
        if "fairshare" in words:
            self.accounts[name] = int(words.pop("fairshare"))
        if "parent" in words:
            above = words.pop("parent").replace("root", "")
            assert not above or above in self.accounts
            self.parents[name] = above
            TopologicalSorter({child: [parent] for child, parent in self.parents.items()}).prepare()
        if "defaultqos" in words:
            default, names = words.pop("defaultqos"), words.pop("qos").split(",")
            assert default in names
            assert self.qos.keys() >= set(names)
            assert all(default in own for (_, account), own in self.user_qos.items() if account == name and own)
            self.account_qos[name] = (default, *sorted(set(names) - {default}))
        self._set_limits(self.account_limits[name], words)

    def delete_account(self, name: str, words: dict[str, str]) -> None:
        assert not any(account == name for _, account in self.members)
        assert name not in self.parents.values()
        del self.accounts[name], self.parents[name]
        self.account_qos.pop(name, None)

    def add_user(self, name: str, words: dict[str, str]) -> None:
        if words.get("adminlevel") == "Operator":
            self.operators.add(name)
            return
        assert words["account"] in self.accounts
        assert (name, words["account"]) not in self.members
        self.members[name, words["account"]] = False
        self.limits[name, words["account"]] = {}
        self.user_qos[name, words["account"]] = ()
        self.default.setdefault(name, words["account"])

    def modify_user(self, name: str, words: dict[str, str]) -> None:
        if "defaultaccount" in words:
            assert (name, words["defaultaccount"]) in self.members
            self.default[name] = words["defaultaccount"]
            return
        account = words.pop("account")
        if "maxsubmitjobs" in words:
            self.members[name, account] = words.pop("maxsubmitjobs") == "0"
        if "qos" in words:
            self.user_qos[name, account] = tuple(sorted(filter(None, words.pop("qos").split(","))))
            assert self.qos.keys() >= set(self.user_qos[name, account])
        self._set_limits(self.limits[name, account], words)

    def delete_user(self, name: str, words: dict[str, str]) -> None:
        gone = [m for m in self.members if m[0] == name and words.get("account", m[1]) == m[1]]
        assert gone
        assert not self.busy.intersection(gone), "Job(s) active"
        for member in gone:
            del self.members[member]
            del self.limits[member], self.user_qos[member]
        left = [account for user, account in self.members if user == name]
        if self.default.get(name) not in left:
            assert not left, "the default account goes last"
            self.default.pop(name, None)
