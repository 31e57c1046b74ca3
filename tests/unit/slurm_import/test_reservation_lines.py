"""Reservations of a site become those of the cluster file; each of their keys has a verdict."""

from __future__ import annotations

from headway.slurm_import.verdicts import Kind
from tests.support.slurm_sites import NODES, imported, verdict

DUMP = "Cluster - 'lab'\nParent - 'root'\nAccount - 'ml'\nParent - 'ml'\nUser - 'ann'\n"
END = "TRES=cpu=4 Groups=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) MaxStartDelay=(null)"


def row(name: str, times: str, nodes: str, flags: str, users: str = "(null)", accounts: str = "(null)") -> str:
    start, end = times.split()
    return (
        f"ReservationName={name} StartTime={start} EndTime={end} Duration=02:00:00 Nodes={nodes} NodeCnt=1 CoreCnt=4 "
        f"Features=(null) PartitionName=(null) Flags={flags} Users={users} Accounts={accounts} {END}\n"
    )


def test_reservations_are_those_of_the_file() -> None:
    conf = (
        NODES + "NodeName=big1 CPUs=4 RealMemory=9000 Feature=big\nNodeName=big2 CPUs=4 RealMemory=9000 Feature=big\n"
    )
    table = (
        row(
            "Window",
            "2027-01-02T22:00:00 2027-01-03T04:00:00",
            "n[1-4],big[1-2]",
            "MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES",
            "root",
        )
        + row("course", "2026-11-30T09:00:00 2026-11-30T11:00:00", "big[1-2]", "FLEX,DAILY,SPEC_NODES", "ann,eve", "ml")
        + row("half", "2026-11-30T09:00:00 2100-01-01T00:00:00", "big1", "STATIC,SPEC_NODES", "ann")
        + row("guests", "2026-11-30T09:00:00 2026-12-30T00:00:00", "big1", "SPEC_NODES", "eve")
    )
    site = imported(slurm__conf=conf, sacctmgr__dump=DUMP, scontrol_reservations__txt=table)
    assert site.faults == []
    found = site.spec["reservations"]
    assert found["window"] == {
        "start": "2027-01-02T22:00:00", "duration": "0-06:00:00", "maintenance": True,
    }  # fmt: skip
    assert found["course"]["repeat"] == "daily"
    assert (found["course"]["users"], found["course"]["teams"], found["course"]["flags"]) == (["ann"], ["ml"], ["FLEX"])
    assert found["course"]["groups"] == [
        name for name, group in site.spec["groups"].items() if group.get("features") == ["big"]
    ]
    assert (found["half"]["nodes"], found["half"]["duration"]) == (1, "infinite")
    assert "guests" not in found
    for key, value, why in (
        ("Users", "ann,eve", "not in the file: eve"),
        ("Nodes", "big1", "Slurm chooses as many nodes"),
        ("Flags", "STATIC,SPEC_NODES", "no flag STATIC"),
        ("ReservationName", "guests", "no user or team of the file may use it"),
    ):
        verdict_found = verdict(site, key, value=value)
        assert (verdict_found.kind, why in verdict_found.why) == (Kind.NOT_CARRIED, True), (key, verdict_found)
    assert verdict(site, "ReservationName", value="course").place == "reservations.course"
