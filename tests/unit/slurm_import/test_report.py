"""The report of an import is readable on one page: much of one kind is folded."""

from __future__ import annotations

from headway.slurm_import.importer import SiteFiles, import_site
from headway.slurm_import.report import report_markdown
from tests.support.slurm_sites import NODES, imported


def test_open_page_of_the_report_is_short_for_many_accounts() -> None:
    dump = "Cluster - 'lab'\nParent - 'root'\n" + "".join(f"Account - 'a{n}'\n" for n in range(60))
    dump += "".join(
        f"Parent - 'a{n}'\nUser - 'u{n // 2}':DefaultAccount='a{59 - n}':MaxWall={n + 1}\n" for n in range(60)
    )
    conf = NODES + "".join(f"PartitionName=p{n} Nodes=ALL AllowAccounts=a1 QOS=q{n} Rule{n}=1\n" for n in range(40))
    site = imported(slurm__conf=conf, sacctmgr__dump=dump)
    page = report_markdown(site).partition("<details>")[0]
    assert len(page.splitlines()) <= 60
    assert "| `DefaultAccount` (60) | another team of the user" in page
    assert "| `QOS` (40) | the QOS was not read | give partitions.NAME.per_user |" in page
    assert site.faults == []


def test_many_reasons_of_the_report_are_folded() -> None:
    conf = "".join(f"PartitionName=p{n} Nodes=ALL AllowAccounts=gone{n}\n" for n in range(80))
    text = report_markdown(import_site(SiteFiles({"slurm.conf": NODES + conf})))
    page, _, folded = text.partition("<details><summary>50 more to decide</summary>")
    assert ("gone29" in page, "gone30" in page, "gone79" in folded) == (True, False, True)
