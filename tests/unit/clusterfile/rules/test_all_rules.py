"""Each invalid input is reported with its field path, message and suggestion; one row per error."""

from __future__ import annotations

import base64

import pytest

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import check_cluster_file
from headway.errors import Fault
from headway.validation.yaml_parser import parse_yaml

CATALOGUE = load_catalogue({})
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGkmVv3MMU8rK1RtH0oxfnDOZzTQAv4wqeYmLM8lJ2Vm"
TWO = "controllers: 2\nprovider: ssh\nhosts: [a, b, c, d, e, f]"
TOP = {"name": "lab", "plan": "h100-8", "nodes": 4}


def faults(text: str, owner: str = "ann", **top: object) -> list[Fault]:
    """Errors of the smallest file with these fields over it."""
    cluster, found = check_cluster_file({**TOP, **parse_yaml(f"x: 1\n{text}"), **top} | {}, CATALOGUE, owner=owner)
    errors = [fault for fault in found if fault.level == "error" and fault.path != "x"]
    assert cluster is None  # x itself is unknown
    return errors


def blob(*fields: bytes) -> str:
    return base64.b64encode(b"".join(len(item).to_bytes(4, "big") + item for item in fields)).decode()


ROWS: list[tuple[str, str, str]] = [
    # text, path, what the whole fault says
    ("nodez: 4", "nodez", "unknown field; did you mean nodes?"),
    ("partitions: {urgent: {preempt: [train]}, train: {}}", "partitions.urgent.preempt", "did you mean preempts?"),
    ("teams: {t: {limits: {gpu_hour: 1}}}", "teams.t.limits.gpu_hour", "did you mean gpu_hours?"),
    ("storage: {scrach: {}}", "storage.scrach", "did you mean scratch?"),
    ("storage: {home: {quota: 100 GB}}", "storage.home.quota", "is not a size; for example 100 GiB or 1.5 TiB"),
    ("storage: {scratch: {quota: 5}}", "storage.scratch.quota", "is not a size"),
    ("storage: {scratch: {quota: 0.5 MiB}}", "storage.scratch.quota", "must be at least 1 MiB"),
    ("storage: {home: {size: 1}}", "storage.home.size", "unknown field"),
    ("fabric: {switches: [{name: a, node: 4}]}", "fabric.switches[0].node", "did you mean nodes?"),
    (
        'provider: ssh\nhosts: [a, {address: b, mig: {"3g.71gb": 2}}]',
        "hosts[1].mig",
        "unknown field; it holds for a group: give the machine a group of its own (groups.NAME)",
    ),
    (
        'provider: ssh\nhosts: {from: "tofu output -json"}',
        "hosts",
        "must be a list: only headway plan and headway apply read it from a command or file",
    ),
    # a field that is left empty is one that was left out, if there is such a field
    ("nodez:", "nodez", "unknown field; did you mean nodes?"),
    ("storage: {home: {size: }}", "storage.home.size", "unknown field"),
    (
        "storage: {volumes: [{name: box, path: /box, mount: nfs4 filer:/x hard,ro}]}",
        "storage.volumes[0].ro",
        "in { } a comma ends a value: put the whole value in quotes",
    ),
    (
        'storage: {volumes: [{name: box, path: /box, mount: "nfs4 fd00::1:/x ro"}]}',
        "storage.volumes[0].mount",
        "[fd00::1]:",
    ),
    ('storage: {volumes: [{name: box, path: /box, mount: "nfs4 [fd00:1]:/x ro"}]}', "storage.volumes[0].mount", "IPv6"),
    (
        'storage: {volumes: [{name: box, path: /box, mount: "nfs4 f[0]:/x"}]}',
        "storage.volumes[0].mount",
        "may have only",
    ),
    # types and ranges
    ("nodes: '4'", "nodes", "must be a whole number"),
    ("nodes: 4.0", "nodes", "must be a whole number"),
    ("nodes: true", "nodes", "must be a whole number"),
    ("nodes: 0", "nodes", "add max"),
    ("nodes: -1", "nodes", "at least 0"),
    ("nodes: 99999", "nodes", "at most 20000"),
    ("spares: -1", "spares", "at least 0"),
    ("plan: 8", "plan", "must be text"),
    ("plan: [h100-8]", "plan", "must be text"),
    ("partitions: [train]", "partitions", "must be a mapping"),
    ("partitions: {train: 4}", "partitions.train", "must be a mapping"),
    ("partitions: {train: {default: 'yes'}}", "partitions.train.default", "true or false"),
    ("teams: {t: {users: ann}}", "teams.t.users", "must be a list"),
    ("teams: {t: {users: [4]}}", "teams.t.users[0]", "must be text"),
    ("provider: gcp", "provider", "must be local, ssh, aws or openstack"),
    ("image: debian11", "image", "must be debian13, debian14 or debian12"),
    ("departures: {jobs: kill}", "departures.jobs", "must be cancel or finish"),
    ("cost: {timezone: Berlin}", "cost.timezone", "is not a time zone"),
    ("cost: {idle: nobody}", "cost.idle", "use, share or centre:NAME"),
    ('cost: {broken: "centre:IT dep"}', "cost.broken", "lower-case"),
    ("teams: {t: {budget: {per: month}}}", "teams.t.budget", "either usd or gpu_hours"),
    ("teams: {t: {budget: {usd: 1, gpu_hours: 1}}}", "teams.t.budget", "either usd or gpu_hours"),
    ("teams: {t: {limits: {gpu_hours: {hours: 4}}}}", "teams.t.limits.gpu_hours.per", "is missing"),
    (
        "teams: {t: {limits: {gpu_hours: {hours: .inf, per: day}}}}",
        "teams.t.limits.gpu_hours.hours",
        "must be a number",
    ),
    ("teams: {t: {limits: {gpu_hours: {hours: 0, per: day}}}}", "teams.t.limits.gpu_hours.hours", "more than 0"),
    ("teams: {t: {share: 0}}", "teams.t.share", "at least 1"),
    # names
    ("name: Lab", "name", "lower-case"),
    ("name: a23456789012345678901x", "name", "1 to 21"),
    ("name: lab_1", "name", "lower-case"),
    ("teams: {V: {}}", "teams.V", "lower-case"),
    ("teams: {normal: {}}", "teams.normal", "a reserved word of Slurm"),
    ("partitions: {default: {}}", "partitions.default", "a reserved word of Slurm"),
    ("partitions: {9x: {}}", "partitions.9x", "starts with a letter"),
    ("teams: {t: {users: [root]}}", "teams.t.users[0]", "system user"),
    ("teams: {t: {users: [munge, mysql, slurm]}}", "teams.t.users[2]", "system user"),
    ("teams: {t: {users: [Ann.Lee]}}", "teams.t.users[0]", "lower-case"),
    ("users: {www-data: {}}", "users.www-data", "system user"),
    # line breaks, control and shell characters
    ('name: "lab\\nSlurmUser=root"', "name", "line break"),
    ('plan: "h100-8\\r"', "plan", "line break"),
    ('teams: {"a;b": {}}', 'teams."a;b"', "the character ';'"),
    ("teams: {t: {users: ['$(id)']}}", "teams.t.users[0]", "the character '$'"),
    ('slurm: {PriorityWeightAge: "1\\nSlurmUser=root"}', "slurm.PriorityWeightAge", "line break"),
    ('slurm: {"PriorityWeightAge=1\\nX": 1}', 'slurm."PriorityWeightAge=1\\nX"', "line break"),
    ("slurm: {MailDomain: 'a`id`'}", "slurm.MailDomain", "the character '`'"),
    ('mail: {relay: "a:25\\u2028b"}', "mail.relay", "line break"),
    ("partitions: {train: {max_time: '1 # x'}}", "partitions.train.max_time", "the character '#'"),
    ("partitions: {train: {preempts: ['a\tb']}}", "partitions.train.preempts[0]", "control character"),
    # plan
    ("plan: h10-8", "plan", "did you mean h100-8?"),
    ("plan: zzz", "plan", "use one of h100-8,"),
    # partitions
    ("partitions: {train: {nodes: 5}}", "partitions.train.nodes", "is 5, and the cluster has 4 nodes; give 4 or fewer"),
    ("partitions: {a: {default: true}, b: {default: true}}", "partitions.b.default", "a is the default"),
    ("partitions: {a: {max_time: tomorrow}}", "partitions.a.max_time", "is not a time"),
    ("partitions: {a: {max_time: 1-2-3}}", "partitions.a.max_time", "is not a time"),
    ("partitions: {a: {max_time: 0}}", "partitions.a.max_time", "longer than 0"),
    ("partitions: {a: {max_time: 9999-0}}", "partitions.a.max_time", "infinite"),
    ("partitions: {a: {max_time: 1.5}}", "partitions.a.max_time", "must be a time"),
    ("partitions: {a: {max_time: 60, default_time: 61}}", "partitions.a.default_time", "longer than max_time"),
    ("partitions: {a: {max_time: 60, default_time: infinite}}", "partitions.a.default_time", "longer than max_time"),
    ("partitions: {a: {teams: [visoin]}}\nteams: {vision: {}}", "partitions.a.teams[0]", "did you mean vision?"),
    ("partitions: {a: {grace_time: -1}}", "partitions.a.grace_time", "at least 0"),
    # preemption
    ("partitions: {a: {preempts: [trian]}, train: {}}", "partitions.a.preempts[0]", "did you mean train?"),
    ("partitions: {a: {preempts: [a]}}", "partitions.a.preempts[0]", "can't preempt itself"),
    ("partitions: {a: {preempts: [b, b]}, b: {}}", "partitions.a.preempts[1]", "twice"),
    ("partitions: {a: {preempts: [b]}, b: {preempts: [a]}}", "partitions.a.preempts", "has a cycle"),
    (
        "partitions: {a: {preempts: [b]}, b: {preempts: [c]}, c: {}}",
        "partitions.a.preempts",
        "every preemptable partition in a lower tier, and c is below b; add c",
    ),
    (
        "partitions: {a: {preempts: [c]}, b: {preempts: [d]}, c: {}, d: {}}",
        "partitions.a.preempts",
        "has c but not d, which Slurm can't express",
    ),
    ("partitions: {a: {tier: 1, preempts: [b]}, b: {}}", "partitions.a.tier", "must be above the tier of b, 1"),
    (
        "partitions: {a: {tier: 2, preempts: [b]}, b: {tier: 1}, c: {tier: 3}}",
        "partitions.c.tier",
        "would preempt b too",
    ),
    # software environments
    ("environments: {none: [torch]}", "environments.none", "it means no environment"),
    ("environments: {Big: [torch]}", "environments.Big", "a name is"),
    ("environments: {a: 3}", "environments.a", "must be a list of packages"),
    ("environments: {a: ['-i https://ann:pw@pypi.lab/simple']}", "environments.a", "an address with a password"),
    ('environments: {a: ["torch\\nnumpy"]}', "environments.a", "has a line break in a package"),
    ("environment: torch@0", "environment", "is not an environment"),
    ("network: {internet: maybe}", "network.internet", "must be open, closed or a list of networks"),
    ("network: {internet: []}", "network.internet", "must be open, closed or a list of networks"),
    ("network: {internet: [10.0.0.1/8]}", "network.internet", "10.0.0.1/8 is not an IPv4 network"),
    ("network: {job_ports: none}", "network.job_ports", "must be all, team or user"),
    ("teams: {t: {network: {internet: [pypi.org]}}}", "teams.t.network.internet", "pypi.org is not an IPv4 network"),
    ("teams: {t: {environment: T}}", "teams.t.environment", "is not an environment"),
    (
        "packages: {index: 'https://ann:pw@pypi.lab/simple'}",
        "packages.index",
        "every user of the cluster could read it",
    ),
    ("packages: {index: pypi.lab}", "packages.index", "must be a URL"),
    ("packages: {proxy: 'yes'}", "packages.proxy", "must be a URL"),
    ("packages: {proxy: head, hosts: ['pypi.lab:99999']}", "packages.hosts[0]", "must be a host"),
    ("packages: {proxy: head, hosts: ['*.lab']}", "packages.hosts[0]", ""),
    # storage
    ("storage: {datasets: [{name: d, path: /d, mount: /etc/d}]}", "storage.datasets[0].mount", "in /etc"),
    ("storage: {datasets: [{name: d, path: /d, mount: /}]}", "storage.datasets[0].mount", "root folder"),
    ("storage: {datasets: [{name: d, path: /d, mount: /opt/modulefiles/d}]}", "storage.datasets[0].mount", "in /opt"),
    (
        "storage: {datasets: [{name: d, path: /d, mount: /opt/}]}",
        "storage.datasets[0].mount",
        "covers /opt/modulefiles",
    ),
    ("storage: {datasets: [{name: d, path: /d, mount: /home}]}", "storage.datasets[0].mount", "in /home"),
    ("storage: {datasets: [{name: d, path: /d, mount: /scratch/d}]}", "storage.datasets[0].mount", "in /scratch"),
    ("storage: {datasets: [{name: d, path: /d, mount: /usr/../d}]}", "storage.datasets[0].mount", '".."'),
    ("storage: {datasets: [{name: d, path: /d, mount: //proc}]}", "storage.datasets[0].mount", "may have only"),
    ("storage: {datasets: [{name: d, path: /d, mount: data}]}", "storage.datasets[0].mount", "absolute path"),
    ("storage: {datasets: [{name: d, path: ./d}]}", "storage.datasets[0].path", "give an absolute path"),
    ("storage: {datasets: [{name: d, path: /a b}]}", "storage.datasets[0].path", "may have only"),
    ("storage: {datasets: [{name: d, path: '/a:/etc'}]}", "storage.datasets[0].path", "may have only"),
    ("storage: {datasets: [{name: d}]}", "storage.datasets[0].path", "is missing"),
    ("storage: {datasets: [{path: /d}]}", "storage.datasets[0].name", "is missing"),
    ("storage: {datasets: [{name: d, path: /d}, {name: d, path: /e, mount: /e}]}", "storage.datasets[1].name", "twice"),
    (
        "storage: {datasets: [{name: d, path: /d, mount: /x}, {name: e, path: /e, mount: /x/y/}]}",
        "storage.datasets[1].mount",
        "the mount of d, /x",
    ),
    # keys
    ("ssh_keys: [~/.ssh/id_ed25519.pub]", "ssh_keys[0]", "paste the text of the .pub file"),
    ("teams: {t: {users: [bob]}}\nusers: {bob: {uid: 999}}", "users.bob.uid", "1000"),
    ("teams: {t: {users: [bob]}}\nusers: {bob: {uid: 65534}}", "users.bob.uid", "is the uid of nobody"),
    (
        "teams: {t: {users: [bob, eve]}}\nusers: {bob: {uid: 2001}, eve: {uid: 2001}}",
        "users.eve.uid",
        "2001 is also the uid of bob",
    ),
    ("ssh_keys: [hello]", "ssh_keys[0]", "not a public SSH key"),
    ("ssh_keys: [ssh-ed25519]", "ssh_keys[0]", "not a whole public SSH key"),
    ("ssh_keys: [ssh-ed25519 AAAA*AAAA]", "ssh_keys[0]", "not a whole public SSH key"),
    (f"ssh_keys: ['command=\"id\" {KEY}']", "ssh_keys[0]", "has options before the key"),
    (f'ssh_keys: ["{KEY}\\n{KEY}"]', "ssh_keys[0]", "line break"),
    (f"ssh_keys: [ssh-rsa {blob(b'ssh-ed25519', b'1' * 32)}]", "ssh_keys[0]", "whole public"),
    (f"ssh_keys: [ssh-ed25519 {blob(b'ssh-rsa', b'1' * 32)}]", "ssh_keys[0]", "a key of another"),
    (f"ssh_keys: [ssh-ed25519 {blob(b'ssh-ed25519', b'short')}]", "ssh_keys[0]", "whole public"),
    (f"ssh_keys: [ssh-rsa {blob(b'ssh-rsa', b'3', b'1' * 64)}]", "ssh_keys[0]", "less than 2048 bits"),
    ("ssh_keys: [ssh-dss AAAA]", "ssh_keys[0]", "no longer accepts"),
    (
        "teams: {t: {users: [bob]}}\nusers: {bob: {ssh_keys: [bob.pub]}}",
        "users.bob.ssh_keys[0]",
        "text of the .pub file",
    ),
    # fabric
    ("fabric: {leaf_size: 0}", "fabric.leaf_size", "at least 1"),
    ("fabric: {leaf_size: 2, switches: [{name: a, nodes: 4}]}", "fabric", "both leaf_size and switches"),
    ("fabric: {switches: []}", "fabric.switches", "must not be empty"),
    ("fabric: {switches: [{name: a, nodes: 3}]}", "fabric.switches", "have 3 nodes, and nodes + spares is 4"),
    ("fabric: {switches: [{name: a, nodes: 2}, {name: b, nodes: 2}]}", "fabric.switches", "children: [a, b]"),
    ("fabric: {switches: [{name: a}, {name: b, nodes: 4}]}", "fabric.switches[0]", "either nodes or children"),
    ("fabric: {switches: [{name: a, nodes: 2}, {name: a, nodes: 2}]}", "fabric.switches[1].name", "twice"),
    (
        "fabric: {switches: [{name: a, children: [c]}, {name: b, nodes: 4}]}",
        "fabric.switches[0].children[0]",
        "switch c does not exist",
    ),
    (
        "fabric: {switches: [{name: r, children: [a, b]}, {name: b, children: [a]}, {name: a, nodes: 4}]}",
        "fabric.switches[1].children[0]",
        "is a child of r already",
    ),
    (
        "fabric: {switches: [{name: a, nodes: 4}, {name: b, children: [c]}, {name: c, children: [b]}]}",
        "fabric.switches",
        "form a cycle",
    ),
    # slurm.conf keys
    ("slurm: {PriorityWeightAg: 1}", "slurm.PriorityWeightAg", "did you mean PriorityWeightAge?"),
    ("slurm: {slurmdtimeout: 1}", "slurm.slurmdtimeout", "did you mean SlurmdTimeout?"),
    ("slurm: {SlurmdTimeout: never}", "slurm.SlurmdTimeout", "must be seconds"),
    ("slurm: {SlurmdTimeout: 99999}", "slurm.SlurmdTimeout", "must be seconds"),
    ("slurm: {OverTimeLimit: 70000}", "slurm.OverTimeLimit", "or UNLIMITED"),
    ("slurm: {SlurmdTimeout: [1]}", "slurm.SlurmdTimeout", "must be text or a whole number"),
    ("slurm: {PriorityFlags: 'MAX_TRES,BOGUS'}", "slurm.PriorityFlags", "must be flags of"),
    ("slurm: {PriorityDecayHalfLife: 0}", "slurm.PriorityDecayHalfLife", "not 0: use would never fade"),
    ("slurm: {PriorityDecayHalfLife: '0-00:00:00'}", "slurm.PriorityDecayHalfLife", "not 0"),
    ("slurm: {RequeueExit: 300}", "slurm.RequeueExit", "exit codes up to 255"),
    ("slurm: {RequeueExit: '1,9-5'}", "slurm.RequeueExit", "must be exit codes"),
    ("slurm: {RequeueExitHold: '1,100-256'}", "slurm.RequeueExitHold", "exit codes up to 255"),
    ("slurm: {ClusterName: x}", "slurm.ClusterName", "Headway sets this key itself; use name"),
    ("slurm: {SlurmUser: root}", "slurm.SlurmUser", "not a slurm.conf key that a cluster file may set"),
    ("slurm: {Prolog: /tmp/x}", "slurm.Prolog", "Headway sets"),
    ("slurm: {MaxNodes: 2}", "slurm.MaxNodes", "under a partition's slurm"),
    (
        "partitions: {a: {slurm: {PriorityWeightAge: 2}}}",
        "partitions.a.slurm.PriorityWeightAge",
        "at the top of the file",
    ),
    ("partitions: {a: {slurm: {MaxTime: 2}}}", "partitions.a.slurm.MaxTime", "use the partition's max_time"),
    ("partitions: {a: {slurm: {OverSubscribe: FORCE}}}", "partitions.a.slurm.OverSubscribe", "NO or EXCLUSIVE"),
    ("image: debian12\nslurm: {MaxBatchRequeue: 3}", "slurm.MaxBatchRequeue", "Slurm 22.05 does not have this key"),
    # machines
    ("nodes: 200\nspares: 1", "nodes", "is 201, and local has at most 200 machines"),
    ("hosts: [10.0.0.1]", "hosts", "needs provider ssh"),
    ("controllers: 2\nprovider: ssh\nhosts: [a, b, c, d, e, f]", "storage.state", "disk or NFS export"),
    (
        "controllers: 2\nprovider: ssh\nstorage: {state: /s}\nhosts: [a, b, c, d, e]",
        "hosts",
        "plus two heads need 6; add machines, two heads first",
    ),
    ("storage: {state: /shared/x}", "storage.state", "needs provider ssh"),
    (f"{TWO}\nstorage: {{state: shared/x}}", "storage.state", "must be an absolute path"),
    (f"{TWO}\nstorage: {{state: /}}", "storage.state", "can't be the root folder"),
    (
        f"{TWO}\nstorage: {{state: /home/headway}}",
        "storage.state",
        "holds the users' folders; for example /home/.headway",
    ),
    (
        f"{TWO}\nstorage: {{state: /box/x, volumes: [{{name: box, path: /box, mount: none /srv/box bind}}]}}",
        "storage.state",
        "a bind mount of /srv/box; give that folder: state: /srv/box",
    ),
    (
        f"{TWO}\nstorage: {{state: /box, volumes: [{{name: box, path: /box, mount: 'nfs4 filer:/box ro'}}]}}",
        "storage.state",
        "is read-only",
    ),
    (
        "controllers: 2\nprovider: ssh\nstorage: {state: /s}\nhosts: [a, b, c, {address: d, role: head}, "
        "{address: e, role: head}, {address: f, role: head}]",
        "hosts[5].role",
        "is the third head",
    ),
    (
        "provider: ssh\nhosts: [{address: a, role: node}, {address: b, role: node}, {address: c, role: node}, "
        "{address: d, role: node}, {address: e, role: node}]",
        "hosts[0].role",
        "leaves no machine for the head",
    ),
    (
        "controllers: 2\nprovider: ssh\nstorage: {state: /s}\nhosts: [a, {address: b, role: node}, {address: c, role: node}, "
        "{address: d, role: node}, {address: e, role: node}, {address: f, role: node}]",
        "hosts[1].role",
        "leaves one machine for two heads",
    ),
    ("controllers: 3", "controllers", "1 or 2"),
    ("controllers: yes", "controllers", "1 or 2"),
    ("controllers: 2.0", "controllers", "1 or 2"),
    ("provider: ssh\nhosts: [a, b, c, d]", "hosts", "lists 4 machines; 4 nodes and spares plus the head need 5"),
    ("provider: ssh", "hosts", "need 5"),
    ("provider: ssh\nhosts: [a, b, c, d, a]", "hosts[4]", "a is given twice"),
    ("provider: ssh\nhosts: [a, b, c, d, -oProxyCommand=x]", "hosts[4].address", "neither an address nor"),
    ("provider: ssh\nhosts: [a, b, c, d, 10.0.0.300]", "hosts[4].address", "neither an address nor"),
    ("provider: ssh\nhosts: [a, b, c, d, {addres: x}]", "hosts[4].addres", "did you mean address?"),
    ("provider: ssh\nhosts: [a, b, c, d, {address: e, key: ~/.ssh/id}]", "hosts[4].key", "give an absolute path"),
    ("provider: ssh\nhosts: [a, b, c, d, {address: e, user: -o}]", "hosts[4].user", "form"),
    ("provider: ssh\nhosts: [a, b, c, d, {address: e, port: 0}]", "hosts[4].port", "at least 1"),
    ("provider: ssh\nhosts: [a, b, c, d, {address: e, role: boss}]", "hosts[4].role", "must be head or node"),
    (
        "provider: ssh\nhosts: [a, b, c, {address: d, role: head}, {address: e, role: head}]",
        "hosts[4].role",
        "the second head",
    ),
    (
        "provider: ssh\nhosts: [a, b, c, d, {address: e, sudo_password: /p}]",
        "hosts[4].sudo_password",
        "user root needs no sudo",
    ),
    (
        "provider: ssh\nhosts: [a, b, c, d, {address: e, jump: 'a b'}]",
        "hosts[4].jump.address",
        "neither an address nor",
    ),
    ("provider: ssh\nhosts: [a, b, c, d, 'fd00::5']", "hosts[4].address", "is an IPv6 address; give an IPv4"),
    (
        "provider: ssh\nhosts: [a, b, c, d, {address: e, jump: 'fd00::5'}]",
        "hosts[4].jump.address",
        "is an IPv6 address",
    ),
    ("provider: ssh\nhosts: [a, b, c, d, {address: e, host_key: x}]", "hosts[4].host_key", "key"),
    (
        "provider: ssh\nhosts: [a, b, c, d, e]\nfirewall: {ssh_from: [10.0.0.1/8]}",
        "firewall.ssh_from[0]",
        "has host bits set",
    ),
    (
        "provider: ssh\nhosts: [a, b, c, d, e]\nfirewall: {ssh_from: ['10.0.0.0/8; drop']}",
        "firewall.ssh_from[0]",
        "has the character",
    ),
    ("firewall: {ssh_from: [10.0.0.0/8]}", "firewall", "needs provider ssh"),
    ("environment: x\ncontainer_image: y", "container_image", "is given together with environment"),
    (
        "teams: {t: {environment: x, container_image: y}}",
        "teams.t.container_image",
        "is given together with environment",
    ),
    ("gpu: {driver: install}", "gpu.driver", "needs provider ssh"),
    ("gpu: {branch: '580'}", "gpu", "driver: keep installs nothing"),
    ("gpu: {driver: install, branch: 580.1}", "gpu.branch", "must be text"),
    (
        "gpu: {driver: install, repository: {url: 'https://u:p@example.org/x', key: 'k'}}",
        "gpu.repository.url",
        "has a user or password",
    ),
    (
        "gpu: {driver: install, repository: {url: 'https://example.org/x', key: 'k'}}",
        "gpu.repository.key",
        "is not an ASCII-armored public key",
    ),
    (
        "gpu: {driver: install, repository: {url: 'https://example.org/x', suite: trixie, key: "
        '"-----BEGIN PGP PUBLIC KEY BLOCK-----\\n\\nx\\n-----END PGP PUBLIC KEY BLOCK-----"}}',
        "gpu.repository",
        "a flat repository has no components",
    ),
    ("containers: {backend: enroot}", "containers.backend", "have no Enroot and Pyxis; leave it out"),
    ("containers: {backend: docker}", "containers.backend", "enroot"),
    (
        "provider: ssh\nhosts: [a, b, c, d, e]\ncontainers: {backend: enroot, signatures: {default: reject}}",
        "containers.signatures",
        "Enroot verifies no signatures of images; use backend: builtin",
    ),
    ("containers: {signatures: {default: signed}}", "containers.signatures.default", "must be accept or reject"),
    (
        "containers: {signatures: {registries: {team: {policy: accept}}}}",
        "containers.signatures.registries.team",
        "must be HOST, HOST:PORT or HOST/PATH",
    ),
    (
        "containers: {signatures: {registries: {r.test/team: {}}}}",
        'containers.signatures.registries."r.test/team"',
        "needs either sigstore_key or policy",
    ),
    (
        "containers: {signatures: {registries: {r.test: {sigstore_key: /etc/hostname}}}}",
        'containers.signatures.registries."r.test".sigstore_key',
        "is not a public key in PEM format; it begins with -----BEGIN PUBLIC KEY-----",
    ),
    ("mail: {relay: mail.example.org}", "mail.relay", "must be host:port"),
    ('mail: {relay: "fd00::1:25"}', "mail.relay", "can't be an IPv6 address"),
    ("mail: {}", "mail.relay", "is missing"),
    ("alerts: {webhook: example.org/hook}", "alerts.webhook", "must be a URL"),
    ("alerts: {webhook: 'file:///etc/passwd'}", "alerts.webhook", "must be a URL"),
    ("alerts: {chat: 'https://exa mple.org/'}", "alerts.chat", "has the character ' '"),
    ("alerts: {chat: 'https://example.org:99999/'}", "alerts.chat", "is not a URL"),
    ("alerts: {mail: oncall}", "alerts.mail", "must be a mail address"),
    ("alerts: {mail: oncall@example.org}", "alerts.mail", "add mail: {relay: HOST:PORT}"),
    ("alerts: {slack: 'https://example.org'}", "alerts.slack", "unknown field"),
]


@pytest.mark.parametrize(("text", "path", "says"), ROWS, ids=[f"{row[1]}-{number}" for number, row in enumerate(ROWS)])
def test_invalid_input_reports_field_and_message(text: str, path: str, says: str) -> None:
    found = faults(text)
    matching = [fault for fault in found if fault.path == path]
    assert matching, [str(fault) for fault in found]
    assert any(says in str(fault) for fault in matching), [str(fault) for fault in matching]


def test_group_maximum_below_its_nodes_names_the_least_maximum() -> None:
    spec = {"name": "lab", "groups": {"gpu": {"plan": "h100-8", "nodes": 4, "max": 2}}}
    _, found = check_cluster_file(spec, CATALOGUE, owner="ann")
    assert "give 4 or more" in [fault.hint for fault in found], [str(fault) for fault in found]


def test_one_error_causes_no_errors_in_other_fields() -> None:
    """A fault drags no false ones behind it in other fields."""
    for text, path, _ in ROWS:
        top = path.split(".")[0].split("[")[0]
        assert {fault.path.split(".")[0].split("[")[0] for fault in faults(text)} == {top}, text


@pytest.mark.parametrize("field", list(TOP))
def test_missing_required_field_is_reported(field: str) -> None:
    spec = {name: value for name, value in TOP.items() if name != field}
    _, found = check_cluster_file(spec, CATALOGUE, owner="ann")
    assert [str(fault) for fault in found] == [f"{field}: is missing"]
    assert [str(fault) for fault in check_cluster_file({**spec, field: None}, CATALOGUE, owner="ann")[1]] == [
        f"{field}: is missing"
    ]


def test_reports_all_errors_in_file_order() -> None:
    found = faults(
        """
name: Lab
plan: h100-9
nodes: 4
spares: x
partitions:
  train: {max_tim: 1, nodes: 5}
  urgent: {preempts: [trian], teams: [nope]}
teams: {vision: {users: [alice, root, alice]}}
storage: {datasets: [{name: "a\\nb"}, {name: x, path: /d, mount: /etc/x}]}
slurm: {PriorityWeightAg: 1}
""",
    )
    assert [fault.path for fault in found] == [
        "name",
        "plan",
        "spares",
        "storage.datasets[0].name",
        "storage.datasets[1].mount",
        "partitions.train.max_tim",
        "partitions.train.nodes",
        "partitions.urgent.preempts[0]",
        "partitions.urgent.teams[0]",
        "teams.vision.users[1]",
        "teams.vision.users[2]",
        "slurm.PriorityWeightAg",
    ]


@pytest.mark.parametrize("owner", ["root", "", "Ann Lee", "slurm", "a\nb"])
def test_refuses_invalid_owner_name(owner: str) -> None:
    cluster, found = check_cluster_file(dict(TOP), CATALOGUE, owner=owner)
    assert cluster is None
    assert [fault.path for fault in found] == [""]
    assert "\n" not in str(found[0])
