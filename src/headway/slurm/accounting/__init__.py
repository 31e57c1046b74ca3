"""Slurm's accounting: accounts, users and limits by sacctmgr, ended jobs and usage by sacct, shares by sshare. What is in the
queue or on nodes now is in the package above."""
