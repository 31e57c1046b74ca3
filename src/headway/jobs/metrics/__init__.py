"""Every number that trainings report: reading the files that `headway_train` writes, the server's copy of them, and its
down-sampled series.

Not here: step and loss of the queue (`jobs.view.progress`), metrics of machines (`cluster.monitoring`).
"""
