"""Accounts, users, limits and QOS of a site: reads what sacctmgr prints, and makes `teams` and `qos` of a cluster file.

Not here: uids of users (`headway.slurm_import.other_files`), what both sides have in the end
(`headway.slurm_import.comparison`)."""
