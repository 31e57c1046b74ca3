"""Commands for jobs: run, submit, queue, logs, cancel, shell, pipelines, notebooks."""
