"""Endpoints of jobs: queue, submission, logs, commands, pipelines, notebooks."""
