"""Endpoints of jobs: queue, submission, logs, commands, pipelines, notebooks, secrets.

Not here: what jobs cost (`api.routers.billing`)."""
