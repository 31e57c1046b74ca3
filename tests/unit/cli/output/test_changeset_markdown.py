"""A plan as the comment of a pull request: counts, what is disturbed, folded diffs; nothing in it is markup or a mention."""

from __future__ import annotations

from headway.cli.output.changeset_markdown import LARGEST_COMMENT, changeset_markdown
from headway.schemas.base import FaultOut
from headway.schemas.clusters import ChangeOut, ChangeSetOut, DifferenceOut


def change(where: str, what: str, disturbs: str = "nothing", why: str = "", diff: list[str] | None = None) -> ChangeOut:
    return ChangeOut(kind="file.write", where=where, what=what, why=why, disturbs=disturbs, diff=diff or [])


CONF = ["-MaxArraySize=1001", "+MaxArraySize=5001"]
SEVERAL = ChangeSetOut(
    cluster="lab",
    changes=[
        change("lab-head", "/etc/slurm/slurm.conf", diff=CONF),
        *(change(f"lab-1-{n}", "/etc/slurm/slurm.conf", diff=CONF) for n in (1, 2, 3)),
        *(change(f"lab-1-{n}", "slurmd", "node drain", "plan h200-8") for n in (1, 2)),
    ],
    disturbing=2,
    price_usd_per_hour="98.40",
)


def test_comment_has_counts_price_and_disturbing_changes() -> None:
    assert changeset_markdown(SEVERAL) == (
        "### Headway plan: lab\n\n**6 changes**, 98.40 USD an hour.\n\n**These disturb running work:**\n\n"
        "- `file.write slurmd on lab-1-[1-2]`: **node drain** (plan h200-8)\n\n"
        "| Change | Count | Where | Effect | Objects |\n|---|---:|---|---|---|\n"
        "| `file.write` | 6 | `lab-head,lab-1-[1-3]` | node drain | `/etc/slurm/slurm.conf`, `slurmd` |\n"
    )


def test_diff_of_several_machines_is_one_folded_block() -> None:
    text = changeset_markdown(SEVERAL, diffs=True)
    assert text.count("<details>") == 1
    assert "<summary>/etc/slurm/slurm.conf on lab-head,lab-1-[1-3]</summary>\n\n```diff\n-MaxArraySize=1001\n" in text


def test_plan_without_changes_says_why() -> None:
    nothing = ChangeSetOut(cluster="lab", changes=[])
    assert changeset_markdown(nothing) == "### Headway plan: lab\n\nNothing to change: the cluster matches its file.\n"


def test_warnings_and_differences_come_first() -> None:
    found = ChangeSetOut(
        cluster="lab",
        changes=[],
        warnings=[FaultOut(path="teams.red", message="has no user", hint="", level="warning")],
        differences=[DifferenceOut(machine="lab-1-1", what="GPUs", plan="8 x h100", found="4 x a100")],
    )
    text = changeset_markdown(found)
    assert text.index("- **Warning:** teams.red: has no user") < text.index(
        "| `lab-1-1` | GPUs | 8 x h100 | 4 x a100 |"
    )


def test_texts_of_machines_are_neither_markup_nor_mentions() -> None:
    why = "<img src=x> [click](http://x.test) @team *bold* | cell"
    text = changeset_markdown(ChangeSetOut(cluster="lab", changes=[change("lab-1-1", "a`|b", "node drain", why)]))
    for markup in ("<img", "[click]", "@team", "*bold*", " | cell", "a`"):
        assert markup not in text
    fenced = changeset_markdown(ChangeSetOut(cluster="lab", changes=[change("x", "/f", diff=["+```"])]), diffs=True)
    assert "\n````diff\n+```\n````\n" in fenced


def test_comment_stays_below_the_limit_of_code_hosts_and_says_what_is_left_out() -> None:
    files = [change("lab-head", f"/etc/{n}", diff=["+" + "x" * 999]) for n in range(100)]
    text = changeset_markdown(ChangeSetOut(cluster="lab", changes=files), diffs=True)
    assert len(text) < LARGEST_COMMENT + 100
    shown = text.count("<details>")
    assert 0 < shown < 100
    assert text.endswith(f"\n{100 - shown} more changed files: `headway plan --diff` shows all.\n")
