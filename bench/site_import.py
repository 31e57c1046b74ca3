"""Measures `headway import` of a made-up site of 1,000 nodes and 5,000 associations, and counts the open lines of its report.
Exits with 1 above 30 s or 60 lines."""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MOST_S, MOST_LINES = 30.0, 60
USERS, ACCOUNTS, PARENTS, KINDS, PARTITIONS, QOS = 3000, 400, 10, 20, 40, 20


def slurm_conf(nodes: int) -> Iterator[str]:
    """Yields the lines of slurm.conf: several kinds of nodes, and partitions with lists of accounts and a QOS."""
    yield from ("ClusterName=big", "SlurmctldHost=head(192.0.2.1)", "PreemptType=preempt/qos", "PreemptMode=REQUEUE")
    each = nodes // KINDS
    for kind in range(KINDS):
        hardware = f"CPUs={32 + kind} RealMemory={256_000 + kind * 1000} Gres=gpu:a100:{kind % 4 + 1}"
        address = f"198.51.{kind}.[1-{each}]"
        yield f"NodeName=r{kind}n[1-{each}] NodeAddr={address} {hardware} Feature=f{kind},ib Weight={kind + 1}"
    for number in range(PARTITIONS):
        accounts = f"a{number},a{number + 1},top0"
        limits = f"MaxTime={number % 7 + 1}-0 PriorityTier={number + 1}"
        yield f"PartitionName=p{number} Nodes=r{number % KINDS}n[1-{each}] {limits} AllowAccounts={accounts} QOS=pq{number}"


def accounts(associations: int) -> Iterator[str]:
    """Yields the lines of sacctmgr dump."""
    chance = random.Random(1)
    yield from ("Cluster - 'big':Fairshare=1:QOS='normal'", "Parent - 'root'")
    yield from (f"Account - 'top{number}':Fairshare=10:GrpTRES='gres/gpu={number + 10}'" for number in range(PARENTS))
    each = ACCOUNTS // PARENTS
    for number in range(ACCOUNTS):
        if number % each == 0:
            yield f"Parent - 'top{number // each}'"
        options = f"Fairshare={number % 9 + 1}:MaxJobs={number % 50 + 1}:QOS='normal,q{number % QOS}'"
        yield f"Account - 'a{number}':{options}"
    for number in range(ACCOUNTS):
        yield f"Parent - 'a{number}'"
        for place in range((associations - ACCOUNTS - PARENTS) // ACCOUNTS):
            limit = f":MaxJobs={place + 1}" * (place % 3 == 0) + ":QOS='+q1'" * (place % 5 == 0)
            yield f"User - 'user{chance.randrange(USERS)}':DefaultAccount='a{number}':Fairshare=1{limit}"


def qos() -> Iterator[str]:
    """Yields the lines of sacctmgr -P show qos."""
    yield "Name|Priority|GraceTime|Preempt|PreemptMode|Flags|UsageFactor|GrpTRES|MaxTRESPU|MaxJobsPU|MaxWall"
    yield "normal|0|00:00:00||cluster||1.000000||||"
    for name in (*(f"pq{number}" for number in range(PARTITIONS)), *(f"q{number}" for number in range(QOS))):
        yield f"{name}|5|00:00:00|normal|cluster|DenyOnLimit|2.000000|gres/gpu=9|cpu=64|4|1-00:00:00"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--associations", type=int, default=5000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        site, to = Path(name) / "site", Path(name) / "big"
        site.mkdir()
        people = (f"user{number}:x:{3000 + number}:100::/home/user{number}:/bin/bash" for number in range(USERS))
        dump, table = accounts(options.associations), qos()
        files = {"slurm.conf": slurm_conf(options.nodes), "accounts.dump": dump, "qos.txt": table, "passwd": people}
        for file, lines in files.items():
            (site / file).write_text("".join(f"{line}\n" for line in lines))
        began = time.monotonic()
        argv = [sys.executable, "-m", "headway", "import", "--from", str(site), "--to", str(to), "-o", "json"]
        done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=600)
        seconds = time.monotonic() - began
        told = json.loads(done.stdout)
        page = re.sub(r"<details>.*?</details>\n", "", (to / "report.md").read_text(), flags=re.DOTALL).splitlines()
    kinds = ", ".join(f"{number:,} {kind}" for kind, number in told["counts"].items())
    print(
        f"{told['nodes']:,} nodes, {options.associations:,} associations, {len(told['verdicts']):,} verdicts: {kinds}"
    )
    print(f"imported in {seconds:.1f} s; {len(page)} lines of the report are open")
    return int(seconds > MOST_S or len(page) > MOST_LINES)


if __name__ == "__main__":
    sys.exit(main())
