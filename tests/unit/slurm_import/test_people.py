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


def test_mounts_rules_and_groups_of_a_directory_are_named() -> None:
    lines = "passwd: files sss\nautomount: sss files\nsudoers: files sss\nnetgroup: nis\ninitgroups: ldap\nhosts: files dns\n"
    site = imported(nsswitch__conf=lines)
    found = {key: verdict(site, key) for key in ("automount", "sudoers", "netgroup", "initgroups")}
    assert {one.kind for one in found.values()} == {Kind.NOT_CARRIED}
    assert found["automount"].why == "mounts of automount maps are not read: sss is not asked"
    assert found["automount"].instead == "list them under storage.volumes"
    assert all(one.instead for one in found.values())
    assert verdict(site, "hosts").kind is Kind.SAME
    assert [item.shown for item, _ in site.entries if item.key == "passwd"] == ["files sss"]


def test_shared_file_systems_that_are_not_carried_are_named() -> None:
    lines = (
        "auto.data /data autofs x 0 0\n", "p /pan panfs rw 0 0\n", "gw /gpfs mmfs rw 0 0\n", "a@h:/d /s fuse.sshfs x 0 0\n",
        "h:/v /odd oddfs rw 0 0\n", "//fs/a /smb smb3 rw 0 0\n",
    )  # fmt: skip
    of_machines = (
        "UUID=1 / ext4 rw 0 1\n", "/dev/sda2 /var xfs rw 0 0\n", "tmpfs /tmp tmpfs rw 0 0\n", "/data /x none bind 0 0\n",
        "systemd-1 /proc/sys/fs/binfmt_misc autofs rw 0 0\n", "lxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0\n",
    )  # fmt: skip
    site = imported(fstab="".join((*lines, *of_machines)))
    for line in lines:
        found = verdict(site, line.split()[1])
        assert (found.kind, "shared" in found.why, bool(found.instead)) == (Kind.NOT_CARRIED, True, True), line
    assert {verdict(site, line.split()[1]).kind for line in of_machines} == {Kind.SAME}


def test_numbered_mounts_are_volumes_with_names_of_their_own() -> None:
    points = ("/data1", "/data2", "/2024/data", "/data", "/data-1", "/7")
    site = imported(fstab="".join(f"filer:/{n} {point} nfs4 rw 0 0\n" for n, point in enumerate(points)))
    volumes = {volume["path"]: volume["name"] for volume in site.spec["storage"]["volumes"]}
    assert volumes == {
        "/data1": "data1", "/data2": "data2", "/2024/data": "data", "/data": "data-2", "/data-1": "data-1", "/7": "volume",
    }  # fmt: skip
    long = f"/{'a' * 40}"
    site = imported(fstab=f"filer:/a {long}1 nfs4 rw 0 0\nfiler:/b {long}2 nfs4 rw 0 0\n")
    assert [volume["name"] for volume in site.spec["storage"]["volumes"]] == ["a" * 31, f"{'a' * 29}-2"]


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
