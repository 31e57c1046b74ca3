"""Values that pages and commands show of a job: array tasks, placement, progress."""
