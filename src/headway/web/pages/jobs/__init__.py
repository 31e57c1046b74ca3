"""Pages of jobs: queue, one job, submission, notebooks."""
