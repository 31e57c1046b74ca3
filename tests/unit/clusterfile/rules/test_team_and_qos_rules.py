"""Teams and people, teams below each other, limits of single users, and QOS: each fault with its field path and message."""

from __future__ import annotations

import pytest

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import check_cluster_file
from headway.validation.yaml_parser import parse_yaml

CATALOGUE = load_catalogue({})
ROWS: list[tuple[str, str, str]] = [
    # text, path, what the whole fault says
    # teams and people
    ("teams: {t: {users: [ann, bob, ann]}}", "teams.t.users[2]", "ann is given twice"),
    ("teams: {t: {users: [ann, bob], leads: [bob, carl]}}", "teams.t.leads[1]", "carl is not a user of t"),
    ("teams: {ann: {users: [bob]}}", "teams.ann", "also the name of a user"),
    ("teams: {bob: {users: [bob]}}", "teams.bob", "also the name of a user"),
    ("teams: {t: {users: [alice]}}\nusers: {alise: {}}", "users.alise", "did you mean alice?"),
    # teams below each other, and limits of single users
    ("teams: {a: {parent: b}}", "teams.a.parent", "team b does not exist"),
    ("teams: {a: {parent: b}, b: {parent: a}}", "teams.a.parent", "has a cycle (a -> b -> a)"),
    ("teams: {a: {parent: a}}", "teams.a.parent", "has a cycle (a -> a)"),
    ("teams: {a: {parent: b}, b: {budget: {usd: 1}}}", "teams.b.budget", "give each team below it a budget"),
    ("teams: {a: {users: [ann], limits: {users: {amn: {gpus: 1}}}}}", "teams.a.limits.users.amn", "did you mean ann?"),
    ("teams: {a: {users: [ann], limits: {users: {ann: {gpus: 0}}}}}", "teams.a.limits.users.ann.gpus", "at least 1"),
    (
        "qos: {q: {teams: [b]}}\nteams: {a: {parent: b, limits: {gpu_hours: {hours: 1, per: day}}}, b: {}}",
        "qos.q.teams",
        "includes a",
    ),
    # reservations
    (
        "reservations: {headway_x: {start: 2026-12-05T22:00, duration: 60, maintenance: true}}",
        "reservations.headway_x",
        "own",
    ),
    (
        "reservations: {a: {start: 2026-12-05T22:00, duration: 60}}",
        "reservations.a",
        "give users or teams, or maintenance",
    ),
    (
        "reservations: {a: {start: tomorrow, duration: 60, maintenance: true}}",
        "reservations.a.start",
        "not a date and time",
    ),
    (
        "reservations: {a: {start: 2026-12-05 22:00, duration: 0, maintenance: true}}",
        "reservations.a.duration",
        "longer",
    ),
    (
        "reservations: {a: {start: 2026-12-05T22:00, duration: 60, users: [ann, eve], nodes: [lab-1-9]}}",
        "reservations.a.users[1]",
        "user eve does not exist",
    ),
    (
        "reservations: {a: {start: 2026-12-05T22:00, duration: 60, users: [ann], nodes: [lab-1-99]}}",
        "reservations.a.nodes[0]",
        "node lab-1-99 does not exist",
    ),
    (
        "reservations: {a: {start: 2026-12-05T22:00, duration: 60, users: [ann], nodes: 99}}",
        "reservations.a.nodes",
        "more than",
    ),
    (
        "reservations: {a: {start: 2026-12-05T22:00, duration: 60, users: [ann], partition: train}}",
        "reservations.a.partition",
        "needs a number of nodes",
    ),
    ("teams: {a: {users: [ann], own_qos: false}}", "teams.a.own_qos", "default_qos names no other QOS"),
    ("qos: {q: {}}\nteams: {a: {users: [ann], own_qos: false, default_qos: a}}", "teams.a.own_qos", "give default_qos"),
    # QOS
    ("qos: {normal: {}}", "qos.normal", "a reserved word of Slurm"),
    ("qos: {t: {}}\nteams: {t: {}}", "qos.t", "also the name of a team"),
    ("qos: {default: {}}", "qos.default", "also the name of a team"),
    ("qos: {high: {teams: [vison]}}\nteams: {vision: {}}", "qos.high.teams[0]", "did you mean vision?"),
    ("qos: {high: {preempts: [low, low]}, low: {}}", "qos.high.preempts[1]", "twice"),
    ("qos: {high: {preempts: [lo]}, low: {}}", "qos.high.preempts[0]", "QOS or team lo does not exist"),
    ("qos: {a: {preempts: [b]}, b: {preempts: [a]}}", "qos.a.preempts", "has a cycle (a -> b -> a)"),
    ("qos: {a: {preempts: [a]}}", "qos.a.preempts", "has a cycle"),
    ("qos: {a: {flags: [Deny]}}", "qos.a.flags[0]", "DenyOnLimit"),
    ("qos: {a: {limits: {gpus: 0}}}", "qos.a.limits.gpus", "at least 1"),
    ("teams: {t: {default_qos: hihg}}\nqos: {high: {}}", "teams.t.default_qos", "did you mean high?"),
    ("teams: {t: {default_qos: a}, u: {}}\nqos: {a: {teams: [u]}}", "teams.t.default_qos", "add t to qos.a.teams"),
    (
        "qos: {a: {preempts: [b]}, b: {}}\npartitions: {x: {preempts: [y]}, y: {}}",
        "qos.a.preempts",
        "can't be combined with preempts of partition x",
    ),
    (
        "qos: {a: {}}\nteams: {t: {limits: {gpu_hours: {hours: 1, per: day}}}}",
        "qos.a.teams",
        "includes t, whose limits.gpu_hours count only jobs without --qos; list others, or replace",
    ),
    (
        "qos: {a: {users: [ann]}}\nteams: {t: {users: [ann], limits: {gpu_hours: {hours: 1, per: day}}}}",
        "qos.a.users",
        "includes a user of t, whose limits.gpu_hours count only jobs without --qos",
    ),
    ("qos: {a: {users: [bbo]}}\nteams: {t: {users: [bob]}}", "qos.a.users[0]", "did you mean bob?"),
    ("qos: {a: {users: [bob]}}\nteams: {t: {users: [bob], default_qos: a}}", "teams.t.default_qos", "a is not for t"),
]


@pytest.mark.parametrize(("text", "path", "says"), ROWS, ids=[f"{row[1]}-{number}" for number, row in enumerate(ROWS)])
def test_fault_names_field_and_reason(text: str, path: str, says: str) -> None:
    cluster, found = check_cluster_file(
        parse_yaml(f"name: lab\nplan: h100-8\nnodes: 4\n{text}"), CATALOGUE, owner="ann"
    )
    assert cluster is None
    matching = [str(fault) for fault in found if fault.path == path]
    assert any(says in fault for fault in matching), [str(fault) for fault in found]
