"""run, submit, queue, logs, pipelines, notebooks."""
