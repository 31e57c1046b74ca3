"""Commands for jobs: run, submit, queue, logs, cancel, shell, pipelines, notebooks.

Not here: the flags of `headway run`, which server and pages share (`schemas.submission`)."""
