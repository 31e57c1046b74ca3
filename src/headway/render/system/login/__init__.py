"""Files of users and their sessions: accounts, sshd, SSH inside jobs, limits, the shell environment. Units and files of
daemons are in `headway.render.system`."""
