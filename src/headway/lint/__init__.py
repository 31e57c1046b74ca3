"""Reads batch scripts as sbatch and the shell do, and finds what a person did not mean: `headway lint`. Pure.

A rule looks at one script and yields findings; each has its line, why it matters, and where possible the lines that
correct it. Rules that need a cluster's file are in `site_rules`.

Not here: what a cluster permits at submission (jobs/submission/submission_check.py), and why a job failed afterwards
(jobs/explain)."""
