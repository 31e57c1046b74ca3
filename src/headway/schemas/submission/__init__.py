"""Requests that start work (jobs, commands, notebooks, pipelines) and their answers.

Not here: jobs that exist (`schemas.jobs`)."""
