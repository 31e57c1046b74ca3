"""Endpoints of jobs: queue, submission, logs, pipelines, notebooks."""
