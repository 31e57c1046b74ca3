"""Finds users of a cluster whom owned machines already know by other uids, or whose files are already there. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from headway.domain.cluster import Cluster
from headway.domain.machines.machine import HostProblem
from headway.domain.machines.survey import Survey

_FIRST, _NOBODY, _MOST = 1000, 65534, 2**31  # uids below _FIRST belong to system users
_OTHERS = "files would belong to another user: "


def agreed_uids(surveys: Mapping[str, Survey], names: Iterable[str]) -> dict[str, int]:
    """Returns the uid of each user whom every machine knows by the same uid (from a directory, or from equal accounts),
    if it can be a person's uid. If one machine does not know the user, the uid is not used, because it may belong to
    someone else there."""
    found: dict[str, int] = {}
    for name in names:
        uids = {survey.users.get(name) for survey in surveys.values()}
        uid = uids.pop() if len(uids) == 1 else None
        if uid is not None and _FIRST <= uid < _MOST and uid != _NOBODY:
            found[name] = uid
    often = Counter(found.values())
    return {name: uid for name, uid in found.items() if often[uid] == 1}


def uid_problems(
    cluster: Cluster, survey: Survey, uids: Mapping[str, int], assigned: frozenset[str]
) -> Iterator[HostProblem]:
    """Yields problems for uids that belong to different users on the machine and in the cluster. `uids`: uids that users
    have or will get; `assigned`: users whose uid is assigned for good."""
    at = f"{survey.machine} ({survey.address})"
    for name, uid in sorted(survey.users.items()):
        ours = uids.get(name)
        if ours is not None and uid != ours:
            what = f"{at} has its own user {name} with uid {uid}; the cluster gives uid {ours}"
            yield HostProblem(
                what, f"{_OTHERS}rename that account, give it uid {ours}, or give the user another name in the file"
            )
    names = {uid: name for name, uid in uids.items()}
    for uid, other in sorted(survey.owners.items()):
        name = names.get(uid, other)
        if other not in (name, "") and uids.get(other) != uid:
            what = f"{at} has uid {uid} as {other}, and the cluster gives it to {name}"
            yield HostProblem(what, f"{_OTHERS}give {other} another uid there, or give {name} one uid on all machines")
    if survey.machine == cluster.head:
        yield from _homes(at, survey, uids, assigned)


def _homes(at: str, survey: Survey, uids: Mapping[str, int], given: frozenset[str]) -> Iterator[HostProblem]:
    """Yields problems for home folders that exist with another owner. A uid is assigned only once, so the owner's uid can
    be chosen only before that."""
    for path, owner in sorted(survey.homes.items()):
        name = path.rpartition("/")[2]
        ours = uids.get(name, owner)
        if owner != ours:
            what = f"{at} has {path}, which belongs to uid {owner}; the cluster gives {name} uid {ours}"
            mend = f"chown -R {ours}:{ours} {path}"
            if name in given:
                yield HostProblem(what, f"{name} can't use it: {mend}", fatal=False)
            else:
                yield HostProblem(what, f"give {name} uid {owner} on every machine; or {mend}")
