"""An import makes a valid cluster file, and each key and line that it reads has one verdict."""

from __future__ import annotations

import json
import re
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.catalog.plans import load_catalogue
from headway.clusterfile.load import resolve_cluster_file
from headway.errors import InvalidSpec
from headway.slurm_import.importer import Imported, SiteFiles, import_site, rehearsal
from headway.slurm_import.report import report_data, report_markdown
from headway.slurm_import.verdicts import Kind
from headway.validation.yaml_parser import dump_yaml, parse_yaml
from tests.support.slurm_sites import FILES, NODES, SECRET, imported, verdict


def with_lines(lines: str) -> Imported:
    return import_site(SiteFiles({"slurm.conf": NODES + lines}))


@pytest.fixture(scope="module")
def helix() -> Imported:
    return import_site(SiteFiles(FILES, source="helix"))


def test_file_is_valid_and_has_what_the_site_has(helix: Imported) -> None:
    cluster, warnings = resolve_cluster_file(helix.spec, load_catalogue(helix.catalogue), owner="ann")
    assert (cluster.name, helix.nodes, helix.faults, warnings) == ("helix", 6, [], ())
    assert {group.name: (group.nodes, group.features, group.weight) for group in cluster.groups} == {
        "cn": (4, ("skylake", "ib"), 10),
        "gpu": (2, ("ib",), 100),
    }
    assert [host.address for host in cluster.hosts] == [
        "10.1.0.1",
        "cn001",
        "cn002",
        "cn003",
        "cn004",
        "10.1.2.1",
        "10.1.2.2",
    ]
    gpu = cluster.groups[1].plan
    assert (gpu.gpu_type, gpu.gpus, gpu.cpus, gpu.memory_mib) == ("a100", 4, 64, 512_000)


def test_partitions_keep_nodes_times_tiers_and_limits(helix: Imported) -> None:
    cluster, _ = resolve_cluster_file(helix.spec, load_catalogue(helix.catalogue), owner="ann")
    cpu, long, urgent = cluster.partitions
    assert (cpu.name, len(cpu.nodes), cpu.default, cpu.max_time_s) == ("cpu", 4, True, 2 * 86400)
    assert cpu.slurm == {"TRESBillingWeights": "CPU=1.0,Mem=0.25G"}
    assert (long.name, long.max_time_s, long.teams) == ("gpu_long", 7 * 86400, ("physics", "bio"))
    assert (long.per_user.running_jobs, long.per_user.gpus, long.per_user.cpus) == (4, 2, 64)
    # not science, although it is not denied: bio is below it
    assert (urgent.preempts, urgent.teams, urgent.grace_s) == (("cpu", "gpu_long"), ("physics", "it"), 60)


def test_accounts_below_each_other_are_teams_below_each_other(helix: Imported) -> None:
    assert helix.spec["teams"] == {
        "science": {"share": 60},
        "physics": {
            "users": ["alice"], "leads": ["alice"], "parent": "science", "share": 3,
            "limits": {"gpus": 4, "per_user": {"running_jobs": 20}},
        },
        "it": {"users": ["dora"], "share": 40},
        "bio": {"users": ["alice", "carl"], "parent": "science", "share": 1, "limits": {"users": {"carl": {"running_jobs": 2}}}},
    }  # fmt: skip
    assert list(helix.spec["teams"]).index("physics") < list(helix.spec["teams"]).index(
        "bio"
    )  # alice's default account
    assert verdict(helix, "Parent", value="science").place == "teams.science"
    assert verdict(helix, "MaxJobs", record="User=carl").place == "teams.bio.limits.users.carl.running_jobs"


def test_switches_are_carried_in_the_order_of_the_slots(helix: Imported) -> None:
    cluster, _ = resolve_cluster_file(helix.spec, load_catalogue(helix.catalogue), owner="ann")
    leaves = {switch.name: switch.nodes for switch in cluster.switches if switch.nodes}
    assert {name: len(nodes) for name, nodes in leaves.items()} == {"leaf1": 2, "leaf2": 3, "leaf3": 1}
    assert verdict(helix, "SwitchName").kind is Kind.CARRIED


def test_each_key_and_line_has_one_verdict(helix: Imported) -> None:
    conf = [name for name in FILES if name.endswith(".conf") and name != "plugstack.conf"]
    pairs = 0
    for name in conf:
        for line in FILES[name].replace("\\\n", " ").splitlines():
            body = line.partition("#")[0].strip()
            if body.lower().startswith(("include", "broken")):
                pairs += 1  # "broken line, password=..." has a pair, and words that are none
                pairs += body.startswith("broken")
            else:
                pairs += len(re.findall(r'\w+=("[^"]*"|\S+)', body))
    dump = [line for line in FILES["sacctmgr.dump"].splitlines() if not line.startswith("#")]
    fields = len(dump) + sum(len(re.findall(r":\w+=", line)) for line in dump)
    cells = sum(1 for line in FILES["qos.txt"].splitlines()[1:] for cell in line.split("|") if cell)
    lines = sum(len(FILES[name].splitlines()) for name in ("passwd", "group", "fstab", "plugstack.conf"))
    assert len(helix.entries) == pairs + fields + cells + lines + 1  # and the script
    assert len({id(item) for item, _ in helix.entries}) == len(helix.entries)


def test_secrets_are_not_in_the_report(helix: Imported) -> None:
    assert "<summary>Same as Headway's default: " in report_markdown(helix)
    texts = (report_markdown(helix), json.dumps(report_data(helix)), dump_yaml(helix.spec), dump_yaml(helix.catalogue))
    assert not any(SECRET in text for text in texts)
    assert "Liddell" not in "".join(texts)
    assert "(secret)" in texts[0]


def test_each_item_that_is_not_carried_says_why_and_what_to_do(helix: Imported) -> None:
    for item, found in helix.entries:
        if found.kind is Kind.NOT_CARRIED:
            assert "" not in (found.why, found.instead), item
        if found.kind is Kind.KEPT:
            assert found.place


@pytest.mark.parametrize(
    ("key", "kind", "place"),
    [
        ("ClusterName", Kind.CARRIED, "name"),
        ("PriorityWeightAge", Kind.KEPT, "slurm.PriorityWeightAge"),
        ("Licenses", Kind.KEPT, "slurm.Licenses"),
        ("SelectType", Kind.SAME, ""),
        ("KillWait", Kind.SAME, ""),
        ("SlurmctldDebug", Kind.SAME, ""),
        ("StateSaveLocation", Kind.NOT_CARRIED, ""),
        ("Bogus", Kind.NOT_CARRIED, ""),
        ("Feature", Kind.CARRIED, "groups.*.features"),
        ("AllowedSwapSpace", Kind.NOT_CARRIED, ""),
        ("ConstrainCores", Kind.SAME, ""),
        ("script", Kind.NOT_CARRIED, ""),
        ("/proj", Kind.CARRIED, "storage.volumes"),
        ("zoe", Kind.NOT_CARRIED, ""),
    ],
)  # fmt: skip
def test_verdicts(helix: Imported, key: str, kind: Kind, place: str) -> None:
    found = verdict(helix, key)
    assert (found.kind, found.place) == (kind, place)


def test_kept_keys_are_in_the_file(helix: Imported) -> None:
    assert helix.spec["slurm"] == {
        "Licenses": "matlab:10",
        "PriorityWeightAge": "5000",
        "PriorityWeightFairshare": "40000",
    }


def test_include_loops_and_missing_files_are_named(helix: Imported) -> None:
    assert helix.unread == {"slurm.conf": "it includes itself", "/etc/slurm/missing.conf": "the file was not found"}


def test_include_loop_over_two_files_ends() -> None:
    site = imported(
        slurm__conf=NODES + "Include a.conf\n", a__conf="KillWait=5\nInclude b.conf\n", b__conf="Include a.conf\n"
    )
    assert site.unread == {"a.conf": "it includes itself"}
    assert site.spec["slurm"] == {"KillWait": "5"}


def test_last_value_of_a_repeated_key_counts() -> None:
    site = with_lines("KillWait=5\nKillWait=7\n")
    assert site.spec["slurm"] == {"KillWait": "7"}
    assert verdict(site, "KillWait", value="5").why == "the same key on a later line counts"


def test_key_of_a_newer_slurm_is_not_kept() -> None:
    found = verdict(with_lines("MaxBatchRequeue=0\n"), "MaxBatchRequeue")
    assert found.kind is Kind.NOT_CARRIED
    assert found.why


def test_site_without_nodes_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="no NodeName line"):
        import_site(SiteFiles({"slurm.conf": "ClusterName=x\n"}))
    with pytest.raises(InvalidSpec, match=r"has no slurm\.conf"):
        import_site(SiteFiles({"gres.conf": ""}))


def test_dynamic_nodes_come_from_scontrol() -> None:
    rows = [
        {"name": f"dyn{n}", "cpus": 16, "real_memory": {"set": True, "number": 64000}, "gres": "gpu:h100:8"}
        for n in (1, 2)
    ]
    site = import_site(SiteFiles({"slurm.conf": "SlurmctldHost=head\n", "nodes.json": json.dumps({"nodes": rows})}))
    assert site.spec["groups"]["dyn"]["nodes"] == 2
    (plan,) = site.catalogue.values()
    assert (plan["gpu_type"], plan["gpus"], plan["cpus"], plan["memory_mib"]) == ("h100", 8, 16, 64000)


def test_controller_that_is_a_node_is_the_head_only() -> None:
    site = imported(slurm__conf="SlurmctldHost=n1\nNodeName=n[1-3] CPUs=2\n")
    assert [host if isinstance(host, str) else host["address"] for host in site.spec["hosts"]] == ["n1", "n2", "n3"]
    assert (site.spec["groups"]["n"]["nodes"], site.faults) == (2, [])
    assert "one node less" in site.notes[0]


def test_template_is_named() -> None:
    site = with_lines("{% for node in nodes %}\nNodeName={{ node.name }} CPUs={{ node.cpus }}\n{% endfor %}\n")
    assert site.notes == ["slurm.conf is a template: import what it becomes on a machine"]
    assert (site.faults, site.spec["groups"]["n"]["nodes"]) == ([], 4)


def test_groups_differ_by_hardware_features_weight_and_partition() -> None:
    site = with_lines(
        "NodeName=m[1-2] CPUs=8 RealMemory=16000 Feature=big\n"
        "PartitionName=a Nodes=n[1-2],m[1-2]\nPartitionName=b Nodes=n[3-4]\n"
    )
    assert {name: group["nodes"] for name, group in site.spec["groups"].items()} == {"n": 2, "n2": 2, "m": 2}
    assert site.spec["partitions"] == {"a": {"groups": ["n", "m"]}, "b": {"groups": ["n2"]}}
    assert len(site.catalogue) == 1


def test_more_than_50_kinds_of_nodes_are_merged_with_a_note() -> None:
    lines = "".join(f"NodeName=k{n} CPUs=8 RealMemory=16000 Weight={n + 2}\n" for n in range(60))
    site = with_lines(lines)
    assert len(site.spec["groups"]) == 1
    assert "features and weights" in site.notes[0]
    assert verdict(site, "Weight").kind is Kind.NOT_CARRIED


def test_contradicting_preemption_is_not_carried() -> None:
    # low preempts nothing; mid and top preempt by tier, but mid is never preempted while above low
    site = with_lines(
        "PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\nPartitionName=low Nodes=ALL PriorityTier=1\n"
        "PartitionName=mid Nodes=ALL PriorityTier=2 PreemptMode=OFF\nPartitionName=top Nodes=ALL PriorityTier=3\n"
    )
    assert site.faults == []
    assert site.spec["partitions"]["top"]["preempts"] == ["low"]


def test_accounts_whose_parents_form_a_loop_do_not_hang() -> None:
    dump = "Cluster - 'lab'\nParent - 'b'\nAccount - 'a'\nParent - 'a'\nAccount - 'b'\nUser - 'ann'\n"
    site = imported(sacctmgr__dump=dump)
    assert site.faults == []


def test_dump_of_a_newer_slurm_is_read() -> None:
    site = imported(
        sacctmgr__dump="Cluster - 'lab':NewThing=3\nParent - 'root'\nAccount - 'ml':Comment='x':Flags=NoUsers\nUser - 'ann'\n"
    )
    assert verdict(site, "Comment").kind is Kind.NOT_CARRIED
    assert verdict(site, "NewThing").kind is Kind.NOT_CARRIED


def test_broken_files_are_named_and_the_rest_is_imported() -> None:
    site = imported(nodes__json="{broken", topology__yaml="- a: [\n", odd__file="what\n")
    assert site.faults == []
    assert {verdict(site, key).kind for key in ("json", "file")} == {Kind.NOT_CARRIED}


def test_file_of_50_000_lines_is_read() -> None:
    text = NODES + "".join(f"Unknown{n}=value\n" for n in range(25_000)) + "# comment\n" * 25_000
    site = import_site(SiteFiles({"slurm.conf": text}))
    assert len(site.entries) == 25_005


def test_rehearsal_has_one_node_a_group_in_containers(helix: Imported) -> None:
    spec = rehearsal(helix)
    cluster, _ = resolve_cluster_file(spec, load_catalogue(helix.catalogue), owner="ann")
    assert (cluster.provider.name, [group.nodes for group in cluster.groups]) == ("local", [1, 1])
    assert [p.name for p in cluster.partitions] == ["cpu", "gpu_long", "urgent"]


def test_yaml_reads_back(helix: Imported) -> None:
    assert parse_yaml(dump_yaml(helix.spec)) == helix.spec


_KEYS = st.sampled_from(
    [
        "ClusterName",
        "SlurmctldHost",
        "KillWait",
        "PriorityWeightAge",
        "Licenses",
        "PreemptType",
        "TreeWidth",
        "Include",
        "Odd",
    ]
)
_NODE = st.sampled_from(["CPUs", "RealMemory", "Gres", "Feature", "Weight", "NodeAddr", "State", "Boards", "Odd"])
_PART = st.sampled_from(
    ["Nodes", "MaxTime", "DefaultTime", "PriorityTier", "AllowAccounts", "DenyAccounts", "QOS", "Default", "GraceTime",
     "MaxNodes", "OverSubscribe", "PreemptMode", "DefMemPerCPU", "TRESBillingWeights", "LLN", "State", "Hidden"]
)  # fmt: skip
_VALUE = st.one_of(
    st.sampled_from(
        [
            "n[1-4]",
            "ALL",
            "YES",
            "no",
            "1",
            "0",
            "99999999999",
            "UNLIMITED",
            "2-00:00:00",
            "-1",
            "gpu:a100:4",
            "a,b",
            "ml",
        ]
    ),
    st.text(string.printable, max_size=12),
)
_LINES = st.one_of(
    st.tuples(_KEYS, _VALUE).map(lambda pair: f"{pair[0]}={pair[1]}"),
    st.tuples(st.sampled_from(["m1", "m[1-3]", "DEFAULT", "x]"]), st.lists(st.tuples(_NODE, _VALUE), max_size=4)).map(
        lambda row: " ".join([f"NodeName={row[0]}", *(f"{key}={value}" for key, value in row[1])])
    ),
    st.tuples(st.sampled_from(["p1", "P2", "DEFAULT", "all"]), st.lists(st.tuples(_PART, _VALUE), max_size=5)).map(
        lambda row: " ".join([f"PartitionName={row[0]}", *(f"{key}={value}" for key, value in row[1])])
    ),
    st.text(max_size=40),
)
_DUMP = st.lists(
    st.tuples(
        st.sampled_from(["Parent", "Account", "User"]),
        st.sampled_from(["root", "ml", "nlp", "ann", "Bob", "all", "ünï"]),
        st.lists(
            st.tuples(
                st.sampled_from(
                    [
                        "Fairshare",
                        "MaxJobs",
                        "GrpTRES",
                        "QOS",
                        "DefaultQOS",
                        "DefaultAccount",
                        "GrpTRESMins",
                        "GrpSubmitJobs",
                        "Odd",
                    ]
                ),
                _VALUE.filter(lambda value: "\n" not in value and "\r" not in value),
            ),
            max_size=3,
        ),
    ).map(lambda row: ":".join([f"{row[0]} - '{row[1]}'", *(f"{key}='{value}'" for key, value in row[2])])),
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(lines=st.lists(_LINES, max_size=12), dump=_DUMP)
def test_any_site_gives_a_valid_file_and_a_verdict_on_everything(lines: list[str], dump: list[str]) -> None:
    texts = {"slurm.conf": NODES + "\n".join(lines), "sacctmgr.dump": "\n".join(["Cluster - 'lab'", *dump])}
    site = import_site(SiteFiles(texts))
    assert site.faults == []
    assert all(found.why and found.instead for _, found in site.entries if found.kind is Kind.NOT_CARRIED)
    assert all(found.place for _, found in site.entries if found.kind is Kind.CARRIED)
    assert parse_yaml(dump_yaml(site.spec)) == site.spec
    report_markdown(site)


def test_features_and_mounts_that_a_file_can_not_have_are_not_carried() -> None:
    site = import_site(
        SiteFiles(
            {
                "slurm.conf": NODES + "NodeName=m1 Feature=ok,:odd\n",
                "fstab": "a:/x /usr nfs rw 0 0\na:/y /data nfs rw 0 0\na:/z /data/sub nfs rw 0 0\n",
            }
        )
    )
    assert (site.faults, site.spec["groups"]["m"]["features"]) == ([], ["ok"])
    assert verdict(site, "Feature").kind is Kind.NOT_CARRIED
    assert [volume["path"] for volume in site.spec["storage"]["volumes"]] == ["/data"]
    assert verdict(site, "/usr").kind is verdict(site, "/data/sub").kind is Kind.NOT_CARRIED


def test_mount_with_a_password_is_not_copied() -> None:
    lines = [f"//filer/{n} /data{n} cifs username=a,{option},rw 0 0\n" for n, option in
             enumerate(("password=sesame", "pass=sesame", "password=(secret)", "credentials=/root/c", "password2=sesame",
                        "user=svc%sesame", "pass2=(secret)", "user=svc%(secret)", "auth.token-1=sesame"))]  # fmt: skip
    lines += ["mon1:/ /ceph ceph name=a,secret=sesame 0 0\n", "//svc:sesame@filer/x /x cifs rw 0 0\n"]
    lines += ["mon1:/ /keys ceph name=a,secretfile=/etc/ceph/a 0 0\n"]
    site = imported(fstab="".join(lines))
    assert [volume["path"] for volume in site.spec["storage"]["volumes"]] == ["/data3", "/keys"]
    assert "sesame" not in report_markdown(site) + dump_yaml(site.spec)
    assert verdict(site, "/data0").why == "it has a password, which members of the cluster could read"
    assert site.faults == []


def test_grace_time_of_zero_is_carried() -> None:
    site = with_lines("PartitionName=a Nodes=ALL GraceTime=0\n")  # Headway's default is two minutes
    assert site.spec["partitions"]["a"] == {"grace_time": 0}
    assert verdict(site, "GraceTime").kind is Kind.CARRIED


def test_accounts_come_from_a_table_of_associations_too() -> None:
    site = imported(
        assoc__txt="Cluster|Account|User|Partition|Par Name|Share|GrpJobs|MaxSubmit|QOS|Def QOS\n"
        "lab|root|||||||normal|\nlab|root|root|||1|||normal|\nlab|science|||root|60|||normal|\nlab|ml|||science|3|9|20|normal|\n"
        "lab|ml|ann|||1|||normal|\nlab|nlp|||science|1|||normal,high|\nlab|nlp|bob|gpu||parent|||normal|\nbroken\n|||||||||\n"
    )
    assert site.spec["teams"] == {
        "science": {"share": 60},
        "ml": {
            "users": ["ann"],
            "parent": "science",
            "share": 3,
            "limits": {"running_jobs": 9, "per_user": {"submitted_jobs": 20}},
        },
        "nlp": {"users": ["bob"], "parent": "science", "share": 1},
    }
    assert site.faults == []
    assert verdict(site, "QOS", value="high").kind is Kind.NOT_CARRIED
    assert verdict(site, "Fairshare", value="1").kind is Kind.SAME
    assert verdict(site, "Partition").kind is Kind.NOT_CARRIED
    assert [item.key for item, found in site.entries if "does not know" in found.why] == []


_CELL = st.sampled_from(
    [
        "",
        "lab",
        "root",
        "ml",
        "ann",
        "1",
        "parent",
        "gres/gpu=5",
        "normal",
        "high",
        "-1",
        "99999999",
        "Bob",
        "x y",
        "+ml",
        "high,ml",
        "NoDecay,Odd",
        "1:00",
        "cpu=0,node=2,mem=1T",
        "0",
    ]
)
_ROWS = st.lists(st.lists(_CELL, max_size=12).map("|".join), max_size=6).map("\n".join)
_SWITCHES = st.lists(
    st.tuples(
        st.sampled_from(["s1", "s2", "top"]),
        st.sampled_from(["Nodes", "Switches"]),
        st.sampled_from(["n[1-2]", "n3", "n[1-4]", "s[1-2]", "top", "s1", "zz"]),
    ).map(lambda row: f"SwitchName={row[0]} {row[1]}={row[2]}"),
    max_size=6,
).map("\n".join)


@settings(max_examples=60, deadline=None)
@given(associations=_ROWS, qos=_ROWS, switches=st.one_of(_SWITCHES, st.text(max_size=50)), text=st.text(max_size=50))
def test_any_other_files_give_a_valid_file(associations: str, qos: str, switches: str, text: str) -> None:
    texts = {
        "slurm.conf": NODES + "NodeName=m1 CPUs=4\nPreemptType=preempt/qos\nPreemptMode=REQUEUE\n",
        "assoc.txt": f"Cluster|Account|User|Partition|Par Name|Share|GrpJobs|GrpTRES|MaxSubmit|QOS|Def QOS\n{associations}",
        "qos.txt": "Name|Priority|Preempt|Flags|UsageFactor|GrpTRES|MaxTRES|MaxTRESPU|MaxJobsPU|MaxWall|GraceTime|"
        f"PreemptMode\n{qos}",
        "topology.conf": switches,
    }
    others = (
        "topology.yaml",
        "fstab",
        "gres.conf",
        "passwd",
        "group",
        "plugstack.conf",
        "cgroup.conf",
        "nodes.json",
        "x.sh",
    )
    site = import_site(SiteFiles({**texts, **dict.fromkeys(others, text)}))
    assert site.faults == []
    report_markdown(site)


def test_account_without_users_is_a_team_without_users() -> None:
    dump = "Cluster - 'lab'\nParent - 'root'\nAccount - 'empty'\n"
    site = imported(sacctmgr__dump=dump, passwd="ann:x:2000:2000::/home/ann:/bin/sh\n")
    assert site.spec["teams"] == {"empty": {"share": 1}}
    assert verdict(site, "ann").kind is Kind.NOT_CARRIED


def test_uids_of_the_site_are_in_the_file() -> None:
    dump = "Cluster - 'lab'\nParent - 'root'\nAccount - 'bio'\nParent - 'bio'\n"
    dump += "".join(f"User - '{name}':DefaultAccount='bio'\n" for name in ("ann", "bob", "carl", "dora", "eve"))
    passwd = "ann:x:2000:2000::/home/ann:/bin/sh\nbob:x:2000:1::/:/bin/sh\ncarl:x:900:1::/:/bin/sh\ndora:x:65534:1::/:/bin/sh\n"
    site = imported(sacctmgr__dump=dump, passwd=passwd)
    assert site.spec["users"] == {"ann": {"uid": 2000}}
    assert (verdict(site, "ann").kind, verdict(site, "ann").place) == (Kind.CARRIED, "users.ann.uid")
    assert verdict(site, "bob").why == "another user has uid 2000 too"
    assert verdict(site, "carl").why == "uid 900 is one of the system"
    assert verdict(site, "dora").why == "uid 65534 is one of the system"
    assert site.notes == ["no uid was read of bob, carl, dora, eve: their files may belong to other uids"]
    assert site.faults == []
