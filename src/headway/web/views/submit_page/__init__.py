"""The submit page: its form, the lines of the script that have faults, and the script that a first job can use.

Not here: the check of a submission (jobs.submission), lint (headway.lint)."""
