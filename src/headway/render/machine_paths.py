"""Paths on machines that several rendered files use."""

from __future__ import annotations

AGENT_PROGRAM = "/usr/lib/headway/agent.pyz"
JWT_KEY = "/etc/slurm/jwt_hs256.key"
PROLOG = "/etc/headway/prolog"
EPILOG = "/etc/headway/epilog"
JOB_TMP = "/var/lib/headway/job-tmp"  # private /tmp of each job
PMIX = "/run/headway/pmix"  # shared by the tasks of an MPI program on one node
