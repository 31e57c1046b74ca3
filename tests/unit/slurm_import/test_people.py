"""People of a site: uids are carried; homes, groups and directories that a cluster does without are named."""

from __future__ import annotations

from headway.slurm_import.verdicts import Kind
from tests.support.slurm_sites import imported, verdict

DUMP = "Cluster - 'lab'\nParent - 'root'\nAccount - 'bio'\nParent - 'bio'\n" + "".join(
    f"User - '{name}':DefaultAccount='bio'\n" for name in ("ann", "bob", "carl")
)
PASSWD = "ann:x:2000:2000::/home/ann:/bin/bash\nbob:x:2001:3000::/users/b/bob:/bin/tcsh\ncarl:x:2002:3000::/home/carl:/bin/bash\n"


def test_uids_of_the_site_are_in_the_file_and_lost_fields_of_a_user_are_named() -> None:
    site = imported(sacctmgr__dump=DUMP, passwd=PASSWD)
    assert site.spec["users"] == {"ann": {"uid": 2000}, "bob": {"uid": 2001}, "carl": {"uid": 2002}}
    fields = [(item.key, item.value, found.why) for item, found in site.entries if item.context.startswith("passwd=")]
    assert fields == [
        ("home", "/users/b/bob", "homes of a cluster are /home/USER"),
        ("shell", "/bin/tcsh", "users of a cluster have bash"),
        ("gid", "3000", "the group of a user has the number of the uid"),
        ("gid", "3000", "the group of a user has the number of the uid"),
    ]
    assert all(found.instead for _, found in site.entries if found.kind is Kind.NOT_CARRIED)


def test_directories_are_named_and_not_copied() -> None:
    site = imported(
        nsswitch__conf="# x\npasswd: files systemd sss\ngroup:  files ldap\nhosts: files dns\nshadow: files\n"
    )
    assert verdict(site, "passwd").why == "users of a cluster are local on each machine: sss is not asked"
    assert "docs/howto/scim.md" in verdict(site, "passwd").instead
    assert verdict(site, "group").why == "groups of a cluster are local on each machine: ldap is not asked"
    assert {verdict(site, key).kind for key in ("hosts", "shadow")} == {Kind.SAME}


def test_folders_of_modules_are_on_a_volume_or_named() -> None:
    fstab = "filer:/apps /apps nfs4 rw 0 0\n"
    site = imported(fstab=fstab, modulespath="# x\n/apps/modulefiles\n/opt/modules\n/usr/share/modules/modulefiles\n")
    found = {item.value: verdict for item, verdict in site.entries if item.key == "modules"}
    assert (found["/apps/modulefiles"].kind, found["/apps/modulefiles"].place) == (Kind.CARRIED, "storage.volumes")
    assert found["/opt/modules"].why == "the folder is on no volume of the cluster"
    assert found["/usr/share/modules/modulefiles"].kind is Kind.SAME


def test_gpus_have_the_type_that_gres_conf_gives_their_node() -> None:
    conf = "ClusterName=lab\nSlurmctldHost=head\nNodeName=n[1-4] CPUs=8 RealMemory=16000 Gres=gpu:4\n"
    gres = (
        "NodeName=n[1-2] Name=gpu Type=v100 File=/dev/nvidia[0-3]\nNodeName=n3 Name=gpu Type=h100\nName=gpu Type=l40s\n"
    )
    site = imported(slurm__conf=conf, gres__conf=gres)
    types = {
        plan["gpu_type"]: len([g for g in site.spec["groups"].values() if g["plan"] == name])
        for name, plan in site.catalogue.items()
    }
    assert types == {"v100": 1, "h100": 1, "l40s": 1}
    assert sorted(group["nodes"] for group in site.spec["groups"].values()) == [1, 1, 2]
