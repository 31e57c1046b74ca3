"""Files of users and their sessions: accounts, sshd, SSH inside jobs, limits, the shell environment.

Not here: units and files of daemons (`render.system`)."""
