"""Every command by name: where its code is and one line about it, so that help loads none of them."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """`target` is "module:attribute" under headway.cli: a function, or a Typer app for a group of commands.

    `words` says how a command's line is read: "" by its options; "split": options end at `--` and what follows is
    kept apart; "raw": every word is the command's own (sbatch's and scp's flags are not ours to know)."""

    name: str
    target: str
    help: str
    parsing: str = ""
    usage: str = ""  # the words after the command's name, where its options do not say it


THEMES: tuple[tuple[str, tuple[Entry, ...]], ...] = (
    (
        "Clusters",
        (
            Entry("init", "cluster.files:init", "Write a commented cluster.yaml to start from."),
            Entry("plan", "cluster.apply:plan", "Show what apply would change, and what that disturbs."),
            Entry("apply", "cluster.apply:apply", "Make a cluster be what its file says."),
            Entry(
                "scale",
                "cluster.scale:scale",
                "Another number of nodes.",
                usage="[OPTIONS] [CLUSTER] NODES | GROUP=NODES...",
            ),
            Entry("roll", "cluster.roll:roll", "Another node image, node by node, while jobs run."),
            Entry("ls", "cluster.status:ls", "List clusters."),
            Entry("status", "cluster.status:status", "Is it ready, and if not, why not."),
            Entry("nodes", "cluster.status:nodes", "Nodes, their state and their GPUs."),
            Entry("down", "cluster.down:down", "Take a cluster down; data is kept unless you say otherwise."),
        ),
    ),
    (
        "Jobs",
        (
            Entry(
                "run",
                "jobs.run:run",
                "Run a command as a job, with this folder's files.",
                "split",
                "[CLUSTER] [OPTIONS] -- COMMAND...",
            ),
            Entry(
                "submit",
                "jobs.submit:submit",
                "Submit a batch script, with sbatch's own flags.",
                "raw",
                "[CLUSTER] [SBATCH FLAGS] SCRIPT [ARGS]",
            ),
            Entry("pipeline", "jobs.pipeline:app", "Steps as jobs that follow each other."),
            Entry(
                "shell",
                "jobs.shell:shell",
                "A shell on a node, with GPUs.",
                "split",
                "[CLUSTER] [OPTIONS] [-- COMMAND...]",
            ),
            Entry("notebook", "jobs.notebook:notebook", "JupyterLab on a node, in your browser."),
            Entry("queue", "jobs.queue:queue", "The queue; -w keeps it on screen."),
            Entry("job", "jobs.job:job", "All about one job; retry or rerun it."),
            Entry("logs", "jobs.job:logs", "A job's output; -f follows it.", usage="[OPTIONS] [CLUSTER] JOB"),
            Entry("cancel", "jobs.job:cancel", "Cancel jobs.", usage="[CLUSTER] JOB..."),
        ),
    ),
    (
        "Faults",
        (
            Entry("incidents", "nodes.incidents:incidents", "Faults of nodes, the latest first."),
            Entry("incident", "nodes.incidents:app", "One fault: all its steps; return its node to service."),
            Entry("node", "nodes.incidents:node", "One node: drain, return, reboot, test; its faults."),
            Entry(
                "fault",
                "nodes.fault:fault",
                "Make a fault on a local cluster, to see what happens.",
                usage="[CLUSTER] KIND [XID | DAEMON] [NODE] [--gpu N] [--heal]",
            ),
        ),
    ),
    (
        "Safety",
        (
            Entry("backup", "data.backup:backup", "Queue, accounting, keys and records in one sealed file."),
            Entry("backups", "data.backup:backups", "List backups; read one to see that it is whole."),
            Entry("restore", "data.backup:restore", "Bring a cluster back from a backup."),
            Entry("storage", "data.storage:app", "Volumes: who has them, how full, how fast."),
            Entry("dataset", "data.dataset:app", "Datasets with versions, read-only on every machine."),
            Entry("secrets", "data.secrets:app", "Change a cluster's keys while jobs run."),
        ),
    ),
    (
        "Costs",
        (
            Entry("usage", "billing.costs:usage", "What jobs held: GPU-hours by team, user, partition or GPU."),
            Entry("invoice", "billing.costs:invoice", "A month's invoice; close it for good."),
            Entry("chargeback", "billing.costs:chargeback", "Who pays which part of the invoice, to the cent."),
            Entry("goodput", "billing.costs:goodput", "How much of it trained, and what took the rest."),
            Entry("budgets", "billing.costs:budgets", "What teams may spend, and what is left."),
            Entry("energy", "billing.costs:energy", "Kilowatt-hours by team."),
            Entry("capacity", "billing.costs:capacity", "How full it was, and how long jobs waited."),
        ),
    ),
    (
        "Access",
        (
            Entry(
                "ssh",
                "access.ssh:ssh",
                "Log in to a cluster, or to a node you have a job on.",
                "split",
                "[CLUSTER] [NODE] [-- COMMAND...]",
            ),
            Entry(
                "exec",
                "access.ssh:exec_",
                "Run one command on the login, output untouched.",
                "split",
                "[CLUSTER] [OPTIONS] -- COMMAND...",
            ),
            Entry(
                "cp",
                "access.ssh:cp",
                "Copy files to and from a cluster (scp).",
                "raw",
                "[SCP FLAGS] SOURCE... TARGET",
            ),
            Entry("ssh-config", "access.ssh:ssh_config", "Let plain ssh, scp, rsync and editors reach a cluster."),
        ),
    ),
    (
        "Headway",
        (
            Entry("doctor", "admin.doctor:doctor", "What this machine lacks to run clusters, and how to get it."),
            Entry("server", "admin.server:app", "Start, stop and watch the Headway server."),
            Entry("container", "data.container:app", "Container images that everybody on a cluster may use."),
            Entry("image", "admin.image:app", "Build, list and remove node images."),
            Entry("token", "access.tokens:app", "Access tokens and sign-in links."),
            Entry("people", "access.people:app", "Who may sign in, and their roles."),
            Entry("audit", "access.people:audit", "Who did what, from where, and how it ended."),
            Entry("schema", "cluster.files:schema", "JSON Schema of cluster.yaml, for editors."),
            Entry("version", "admin.version:version", "Versions of this client and its server."),
        ),
    ),
)

ENTRIES: dict[str, Entry] = {entry.name: entry for _, entries in THEMES for entry in entries}

WORDS_AFTER_DASHES = "headway.rest"  # in a parsed line's meta: the words after `--` (None where there was none)

EXAMPLE = "headway init && headway apply cluster.yaml && headway submit train.sbatch"
