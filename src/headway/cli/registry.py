"""Every command by name: its code's location and one line of help, so that `headway --help` imports none of them."""

from __future__ import annotations

from typing import NamedTuple


class CommandEntry(NamedTuple):
    """A command. `target` is "module:attribute" under headway.cli.commands: a function, or a Typer app for a group.

    `parsing`: "" by the command's options; "split": options end at `--`, the words after it are kept apart; "raw": the command
    parses all words itself (flags of sbatch and scp are not known here)."""

    name: str
    target: str
    help: str
    parsing: str = ""
    usage: str = ""  # the words after the command's name; "": from its options


THEMES: tuple[tuple[str, tuple[CommandEntry, ...]], ...] = (  # a theme holds the commands of one folder
    (
        "Clusters",
        (
            CommandEntry("init", "cluster.cluster_file:init", "Write a commented cluster.yaml to start from."),
            CommandEntry("import", "cluster.import_site:import_site", "Make a cluster file of a running Slurm site."),
            CommandEntry(
                "export", "cluster.export:app", "Write a cluster for plain Slurm, a job or service for Kubernetes."
            ),
            CommandEntry(
                "rehearse", "cluster.rehearse:rehearse", "Submit a site's last jobs to the rehearsal of its cluster."
            ),
            CommandEntry("plan", "cluster.apply:plan", "Show what apply would change, and what that disturbs."),
            CommandEntry("apply", "cluster.apply:apply", "Create a cluster, or change it to match its file."),
            CommandEntry(
                "scale",
                "cluster.scale:scale",
                "Change the number of nodes.",
                usage="[OPTIONS] [CLUSTER] NODES | GROUP=NODES...",
            ),
            CommandEntry("roll", "cluster.roll:roll", "Update the node image, node by node, while jobs run."),
            CommandEntry(
                "whatif", "cluster.whatif:whatif", "Replay a queue with more nodes, other caps or another policy."
            ),
            CommandEntry("ls", "cluster.status:ls", "List clusters."),
            CommandEntry("status", "cluster.status:status", "Show whether a cluster is ready, and which checks fail."),
            CommandEntry("cloud", "cluster.cloud:app", "Show what the server rents from clouds, and its price."),
            CommandEntry("keys", "cluster.keys:app", "Rotate a cluster's keys while jobs run."),
            CommandEntry(
                "schema", "cluster.cluster_file:schema", "Print the JSON Schema of cluster.yaml, for editors."
            ),
            CommandEntry("down", "cluster.down:down", "Remove a cluster's machines; keep its data."),
        ),
    ),
    (
        "Jobs",
        (
            CommandEntry(
                "run",
                "jobs.run:run",
                "Run a command as a job, with this folder's files.",
                "split",
                "[CLUSTER] [OPTIONS] -- COMMAND...",
            ),
            CommandEntry(
                "submit",
                "jobs.submit:submit",
                "Submit a batch script, with sbatch's own flags.",
                "raw",
                "[CLUSTER] [SBATCH FLAGS] SCRIPT [ARGS]",
            ),
            CommandEntry("lint", "jobs.lint:lint", "Find mistakes in batch scripts, and correct them."),
            CommandEntry("convert", "jobs.convert:convert", "Convert a job file of another scheduler."),
            CommandEntry("secret", "jobs.secret:app", "Manage secrets of jobs: API keys that jobs get as files."),
            CommandEntry("pipeline", "jobs.pipeline:app", "Run steps as jobs that depend on each other."),
            CommandEntry("serve", "jobs.serve:app", "Run HTTP servers as jobs, behind one address."),
            CommandEntry("batch", "jobs.batch:app", "Compute a result for each row of a dataset."),
            CommandEntry("sweep", "jobs.sweep:app", "Search for the best parameters of a command."),
            CommandEntry(
                "shell",
                "jobs.shell:shell",
                "Open a shell on a node, with GPUs.",
                "split",
                "[CLUSTER] [OPTIONS] [-- COMMAND...]",
            ),
            CommandEntry("notebook", "jobs.notebook:notebook", "Start JupyterLab on a node and open it in a browser."),
            CommandEntry("queue", "jobs.queue:queue", "Show the queue; -w refreshes it."),
            CommandEntry("job", "jobs.job:job", "Show, retry or rerun one job."),
            CommandEntry("trainings", "jobs.trainings:trainings", "List jobs by the metrics that they reported."),
            CommandEntry(
                "logs", "jobs.logs:logs", "Print a job's output; -f follows it.", usage="[OPTIONS] [CLUSTER] JOB"
            ),
            CommandEntry("cancel", "jobs.cancel:cancel", "Cancel jobs.", usage="[CLUSTER] JOB..."),
        ),
    ),
    (
        "Nodes",
        (
            CommandEntry("nodes", "nodes.nodes:nodes", "List nodes with state and GPUs."),
            CommandEntry("node", "nodes.node:app", "Drain, return, reboot or test a node; show its faults."),
            CommandEntry("test", "nodes.fabric_test:app", "Measure the fabric between idle nodes."),
            CommandEntry("incidents", "nodes.incidents:incidents", "List node faults, latest first."),
            CommandEntry("incident", "nodes.incidents:app", "Show one fault's steps; return its node to service."),
            CommandEntry(
                "fault",
                "nodes.fault:fault",
                "Inject a fault into a local cluster, for tests.",
                usage="[CLUSTER] KIND [XID | DAEMON] [NODE] [--gpu N] [--heal]",
            ),
        ),
    ),
    (
        "Data",
        (
            CommandEntry("storage", "data.storage:app", "Show volumes: nodes, usage, throughput."),
            CommandEntry("lineage", "data.lineage:app", "Show what a job, dataset, model or service was made of."),
            CommandEntry("model", "data.model:app", "Promote versions of models that pass their gates."),
            CommandEntry("dataset", "data.dataset:app", "Manage versioned datasets, read-only on every machine."),
            CommandEntry("env", "data.env:app", "Manage software environments: Python packages for jobs."),
            CommandEntry(
                "container", "data.container:app", "Manage container images shared by all users of a cluster."
            ),
            CommandEntry(
                "backup", "data.backup:backup", "Write queue, accounting, keys and records to one encrypted file."
            ),
            CommandEntry("backups", "data.backup:backups", "List backups; verify one."),
            CommandEntry("adopt", "data.adopt:adopt", "Pack a Slurm site's history and queue for its new cluster."),
            CommandEntry("restore", "data.backup:restore", "Restore a cluster from a backup."),
        ),
    ),
    (
        "Costs",
        (
            CommandEntry("usage", "billing.usage:usage", "Report GPU-hours by team, user, partition or GPU."),
            CommandEntry("invoice", "billing.invoices:invoice", "Show a month's invoice; close it."),
            CommandEntry(
                "chargeback", "billing.invoices:chargeback", "Split a month's invoice among teams, to the cent."
            ),
            CommandEntry(
                "goodput", "billing.goodput:goodput", "Report the productive share of GPU time, and the losses."
            ),
            CommandEntry("budgets", "billing.budgets:budgets", "Show budgets of teams and their remaining parts."),
            CommandEntry("energy", "billing.energy:energy", "Report kilowatt-hours by team."),
            CommandEntry("capacity", "billing.capacity:capacity", "Report GPU utilisation and queue waits."),
            CommandEntry(
                "forecast", "billing.forecast:forecast", "Forecast GPU-hours, queue waits, and when GPUs run out."
            ),
            CommandEntry("buy", "billing.buy:buy", "Find which GPUs to own, reserve or rent, from the usage."),
            CommandEntry("offers", "billing.offers:offers", "Compare prices of GPU machines of clouds."),
            CommandEntry("size", "billing.size:size", "Predict GPUs, time and price of training or serving a model."),
        ),
    ),
    (
        "Access",
        (
            CommandEntry(
                "ssh",
                "access.ssh:ssh",
                "Log in to a cluster, or to a node you have a job on.",
                "split",
                "[CLUSTER] [NODE] [-- COMMAND...]",
            ),
            CommandEntry(
                "exec",
                "access.exec:exec_",
                "Run one command on the login node.",
                "split",
                "[CLUSTER] [OPTIONS] -- COMMAND...",
            ),
            CommandEntry(
                "cp",
                "access.cp:cp",
                "Copy files to and from a cluster (scp).",
                "raw",
                "[SCP FLAGS] SOURCE... TARGET",
            ),
            CommandEntry("ssh-config", "access.ssh:ssh_config", "Print or install ssh configuration for a cluster."),
            CommandEntry("login", "access.login:login", "Use a server on another machine, with a pinned certificate."),
            CommandEntry("token", "access.tokens:app", "Manage access tokens and sign-in links."),
            CommandEntry("people", "access.people:app", "Manage who may sign in, and their roles."),
            CommandEntry("limits", "access.limits:limits", "Show your own limits, and what you use of them."),
            CommandEntry("audit", "access.audit:app", "Export and verify the audit trail."),
        ),
    ),
    (
        "Administration",
        (
            CommandEntry("doctor", "admin.doctor:doctor", "Check whether this machine can run local clusters."),
            CommandEntry("server", "admin.server:app", "Start, stop and inspect the Headway server."),
            CommandEntry("image", "admin.image:app", "Build, list and remove node images."),
            CommandEntry("mlflow", "admin.mlflow:app", "Install and inspect the MLflow server."),
            CommandEntry("version", "admin.version:version", "Print versions of this client and its server."),
        ),
    ),
)

ENTRIES: dict[str, CommandEntry] = {entry.name: entry for _, entries in THEMES for entry in entries}

WORDS_AFTER_DASHES = "headway.rest"  # key in the context's meta: the words after `--` (None without `--`)

EXAMPLE = "headway init && headway apply cluster.yaml && headway submit train.sbatch"
