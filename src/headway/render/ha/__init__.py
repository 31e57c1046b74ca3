"""Files for a second head: they place Slurm's state folder and prevent two active controllers.

Not here: the takeover itself (`node/agent/failover`), and which head leads (`cluster.active_head`)."""
