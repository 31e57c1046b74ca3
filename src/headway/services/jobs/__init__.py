"""Use cases of jobs: submission, actions, logs, lineage, notebooks, pipelines.

Not here: the work on the head (`headway.jobs`), the list of jobs (`services.queue`)."""
