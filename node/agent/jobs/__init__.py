"""Jobs on this machine: their processes, their reports, their begin and end; on the head, jobs that the controller
lost.

Not here: submission (`node/user_helper`), the prolog's text (`render.slurm.hooks`)."""
