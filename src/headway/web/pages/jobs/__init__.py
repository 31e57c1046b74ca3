"""Pages of jobs: queue, one job, submission, notebooks.

Not here: the Jupyter server behind a notebook (`server.notebook_proxy`)."""
