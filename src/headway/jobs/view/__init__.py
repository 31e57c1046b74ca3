"""Values that pages and commands show of a job: array tasks, placement, progress.

Not here: their layout (`web.views`, `cli.output`)."""
