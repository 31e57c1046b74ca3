"""The table of trainings: jobs that reported metrics, compared with each other, with notes and tags.

Not here: the values of their metrics over time (`services.jobs.training_metrics`)."""
