"""Users and limits of a running cluster: Slurm's accounts, and Linux users on its machines.

Not here: which users and accounts a cluster should have (`changes.account_changes`), people (`services.access`)."""
