"""What of a machine depends on its users, and that nothing else is written for a new user."""

from __future__ import annotations

from dataclasses import replace

from headway.changes.machine_changes import DesiredMachine
from headway.changes.user_changes import user_changes, user_part
from headway.domain.cluster import Cluster
from headway.domain.machines.observed_state import ObservedFile, ObservedMachine, ObservedUnit
from headway.domain.network_policy import TEAM, NetworkPolicy
from headway.domain.storage.quotas import DesiredQuota, ObservedQuota, UserQuota
from headway.domain.teams import Team, User
from headway.render.files_by_role import USER_RULES, render_files
from headway.render.system import daemon_port_users, job_network
from headway.render.system.login.users import FOLDER, KEYS
from headway.render.system.unit_list import units_by_role
from tests.support.clusters import builders

ANN, ZOE = User("ann", ("key of ann",), ("red",)), User("zoe", ("key of zoe",), ("red",), admin=True)
NODES = "node"
RULES, PORTS, ZOES_KEYS = "/etc/headway/job-network.nft", daemon_port_users.RULES, f"{KEYS}/zoe"


def lab(*users: User) -> Cluster:
    team = Team("red", tuple(user.name for user in users), 1, network=NetworkPolicy(TEAM, None))
    return builders.cluster(1, teams=(team,), users=users)


def desired(cluster: Cluster, role: str, **others: object) -> DesiredMachine:
    site = builders.site(cluster)
    files = render_files(cluster, site)
    homes = tuple((f"/home/{user}", user, uid) for user, uid in site.uids.items())
    dirs = (("/var/spool", "slurm", 0o700), *((f"/scratch/{user}", str(uid), 0o700) for user, uid in site.uids.items()))
    quotas = {"/home": DesiredQuota(10, 5, site.uids)}
    of_head = {"homes": homes, "dirs": dirs, "quotas": quotas} if role == "head" else {}
    return DesiredMachine.build(files[role], {}, units_by_role(cluster, site)[role], **of_head, **others)


def as_applied(machine: DesiredMachine) -> ObservedMachine:
    """Returns what is seen of a machine that an apply has brought to this state."""
    return ObservedMachine(
        files={
            path: ObservedFile(machine.digests[path], file.mode, file.owner, file.group, 1.0)
            for path, file in machine.files.items()
        },
        units={unit.name: ObservedUnit(True, True, 2.0, 1, machine.loaded[unit.name]) for unit in machine.units},
        managed=tuple(machine.files),
        dirs=frozenset(path for path, *_ in (*machine.dirs, *machine.homes)),
        quotas={
            path: ObservedQuota("ext4", "/dev/vda", True, dict.fromkeys(quota.uids, UserQuota(quota.limit, 0, True)))
            for path, quota in machine.quotas.items()
        },
    )


def changes(role: str, seen: ObservedMachine) -> list[tuple[str, str]]:
    part = user_part(desired(lab(ANN, ZOE), role), ["zoe"])
    return [(row.kind, row.what) for row in user_changes("m", part, seen)]


def test_every_file_that_a_user_changes_is_of_the_user() -> None:
    """A file that is not listed would wait for the next apply."""
    before, after = ({role: desired(lab(*users), role) for role in ("head", NODES)} for users in ([ANN], [ANN, ZOE]))
    for role in after:
        differ = {
            path
            for path in {*before[role].files, *after[role].files}
            if before[role].digests.get(path) != after[role].digests.get(path)
        }
        accounts = {f"{FOLDER}/{name}" for name in ("passwd", "group", "shadow")}  # node/ops/user_locks.py
        assert differ - accounts == {*user_part(after[role], ["zoe"]).files} & (USER_RULES | {ZOES_KEYS}) - (
            set() if role == "head" else {PORTS}
        )


def test_user_gets_keys_rules_folders_and_quotas() -> None:
    found = changes("head", as_applied(desired(lab(ANN), "head")))
    assert sorted(found) == sorted([
        ("file.write", ZOES_KEYS), ("file.write", PORTS), ("file.write", RULES), ("dir.make", "/scratch/zoe"),
        ("home.make", "/home/zoe"), ("quota.set", "/home"),
        ("unit.reload", daemon_port_users.SERVICE), ("unit.reload", job_network.SERVICE),
    ])  # fmt: skip
    node = changes(NODES, as_applied(desired(lab(ANN), NODES)))
    assert sorted(node) == [("file.write", RULES), ("file.write", ZOES_KEYS), ("unit.reload", job_network.SERVICE)]


def test_quotas_are_those_of_the_users() -> None:
    part = user_part(desired(lab(ANN, ZOE), "head"), ["zoe"])
    assert {path: quota.uids for path, quota in part.quotas.items()} == {"/home": {"zoe": 20001}}


def test_nothing_changes_on_a_machine_that_an_apply_has_brought_up_to_date() -> None:
    for role in ("head", NODES):
        assert changes(role, as_applied(desired(lab(ANN, ZOE), role))) == []


def test_rules_of_a_policy_that_no_apply_has_brought_yet_are_left_to_the_apply() -> None:
    """The rules alone would not fit the script that adds jobs to them."""
    before = desired(lab(ANN), NODES)
    seen = as_applied(before)
    script = "/etc/headway/job-network"
    older = replace(seen, files={**seen.files, script: replace(seen.files[script], digest="of another policy")})
    none = {path: file for path, file in seen.files.items() if "job-network" not in path}
    for found in (older, replace(seen, files=none, managed=tuple(none))):
        assert changes(NODES, found) == [("file.write", ZOES_KEYS)]


def test_keys_of_the_user_that_headway_signs_in_as_are_left_alone() -> None:
    part = user_part(desired(lab(ANN, ZOE), NODES), ["zoe"], keep_keys_of=["zoe"])
    assert ZOES_KEYS not in part.files
