"""Slurm's accounting: accounts, users and limits by sacctmgr, ended jobs and usage by sacct, shares by sshare.

Not here: what is in the queue or on nodes now (`headway.slurm`)."""
