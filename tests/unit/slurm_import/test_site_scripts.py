"""Scripts of a site come along on request, in the order in which Slurm runs them, and without secrets."""

from __future__ import annotations

import pytest

from headway.slurm_import.importer import Imported, SiteFiles, import_site
from headway.slurm_import.verdicts import Kind, Verdict

CONF = """\
ClusterName=helix
SlurmctldHost=head
Prolog=/etc/slurm/prolog.d/*.sh
Epilog=/opt/site/end.sh
JobSubmitPlugins=lua
NodeName=n[1-2] CPUs=8 RealMemory=16000
PartitionName=work Nodes=ALL
"""
LUA = """\
function slurm_job_submit(d, p, u) return slurm.SUCCESS end
function slurm_job_modify(d, r, p, u) return slurm.SUCCESS end
"""
SCRIPTS = {
    "prolog.d/20-licence.sh": "#!/bin/sh\nexit 0\n",
    "prolog.d/10-mounts.sh": "#!/bin/sh\nmount -a\n",
    "opt/site/end.sh": "#!/bin/bash\ntrue\n",
    "job_submit.lua": LUA,
}


def imported(conf: str = CONF, **changed: str) -> Imported:
    return import_site(SiteFiles({"slurm.conf": conf, **SCRIPTS, **changed}), with_scripts=True)


def verdict(found: Imported, key: str, file: str = "slurm.conf") -> Verdict:
    return next(verdict for item, verdict in found.entries if (item.file, item.key) == (file, key))


def test_scripts_are_named_in_the_order_of_the_site() -> None:
    found = imported()
    assert found.spec["scripts"] == {
        "prolog": ["prolog.d/10-mounts.sh", "prolog.d/20-licence.sh"],
        "epilog": ["epilog.d/end.sh"],
        "job_submit": "job_submit.lua",
    }
    assert found.scripts["epilog.d/end.sh"] == SCRIPTS["opt/site/end.sh"]
    assert {verdict(found, key).kind for key in ("Prolog", "Epilog", "JobSubmitPlugins")} == {Kind.CARRIED}
    assert {verdict(found, "script", path).kind for path in SCRIPTS} == {Kind.CARRIED}


def test_without_the_option_scripts_stay_on_the_site() -> None:
    found = import_site(SiteFiles({"slurm.conf": CONF, **SCRIPTS}))
    assert ("scripts" in found.spec, found.scripts) == (False, {})
    assert "--with-scripts" in verdict(found, "script", "opt/site/end.sh").instead


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("mysql --password=Sesame77 -e 'select 1'", 2),
        ('API_KEY="abcd1234"', 2),
        ("curl -H 'Authorization: Bearer abcdefgh.ijkl' https://licence", 2),
        ("curl https://ann:Sesame77@licence/checkout", 2),
        ("MYSQL_PWD=Sesame77 mysql -e 'select 1'", 2),
        ("mysql -u slurm -pSesame77 slurm_acct_db", 2),
        ("sshpass -p Sesame77 ssh head", 2),
        ("licence --password Sesame77", 2),
        ("licence --api-token 'Sesame77'", 2),
        ("curl -s -u ann:Sesame77 https://licence", 2),
        ("ldapsearch -x -D cn=ann -w Sesame77", 2),
        ("curl -H 'Authorization: Basic QW5uOlNlc2FtZTc3'", 2),
        ("curl -H 'X-API-Key: Sesame77' https://licence", 2),
        ("-----BEGIN PRIVATE KEY-----", 2),
        ('DB_PASS="my Sesame77"', 2),
        ("curl -d x https://hooks.slack.com/services/T0/B0/Sesame77", 2),
        ("AWS_KEY=AKIAIOSFODNN7EXAMPLE", 2),
        ("mount -o username=svc,password2=Sesame77 //fs/a /a", 2),
        ("DB_PASSWORD_PROD=Sesame77", 2),
        ("mount -t cifs -o user=svc%Sesame77 //fs/a /a", 2),
        ("smbclient -U svc%Sesame77 //fs/a", 2),
        ("mount -t ceph -o name=a,secretfile=ceph.key mon:/ /a", 0),
        ("sbatch --output=%u-%j --user=$(id -un) x.sh", 0),
        ("mysql -u slurm -p slurm_acct_db", 0),
        ('mysql -P 3306 -p"$PW" slurm_acct_db', 0),
        ('curl -u "$WHO:$PW" --token "$TOKEN" https://licence', 0),
        ('curl -H "Authorization: Basic $KEY" -H "X-API-Key: $KEY"', 0),
        ('cd "$PWD" && OLDPWD="/tmp"', 0),
        ("token=$(cat /root/token)", 0),
        ("PASSWORD=$1", 0),
        ("logger 'no password: ask it'", 0),
    ],
)
def test_script_with_a_secret_is_not_copied(line: str, number: int) -> None:
    found = imported(**{"opt/site/end.sh": f"#!/bin/sh\n{line}\n"})
    assert ("epilog" in found.spec["scripts"]) is (number == 0)
    if number:
        assert verdict(found, "script", "opt/site/end.sh").why.startswith(f"line {number} may have a password")
        assert verdict(found, "Epilog").kind is Kind.NOT_CARRIED
        assert "Sesame77" not in str(found.spec) + str(found.scripts)


def test_script_that_a_cluster_file_refuses_is_named_with_the_reason() -> None:
    found = imported(**{"opt/site/end.sh": "exit 0\n", "job_submit.lua": "-- nothing\n"})
    assert found.spec["scripts"].keys() == {"prolog"}
    assert "interpreter" in verdict(found, "script", "opt/site/end.sh").why
    assert "slurm_job_submit" in verdict(found, "script", "job_submit.lua").why
    assert found.faults == []


def test_script_that_is_not_there_is_named() -> None:
    found = imported(CONF.replace("/opt/site/end.sh", "/opt/other.sh"))
    assert verdict(found, "Epilog").why == "the file was not read"


def test_scripts_of_one_name_in_two_folders_have_two_names() -> None:
    conf = CONF.replace("Epilog=/opt/site/end.sh", "Prolog=/opt/site/10-mounts.sh")
    found = imported(conf, **{"opt/site/10-mounts.sh": "#!/bin/sh\nls\n"})
    assert found.spec["scripts"]["prolog"][-1] == "prolog.d/2-10-mounts.sh"
