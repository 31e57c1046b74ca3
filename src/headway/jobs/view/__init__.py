"""Values that pages and commands show of a job: queue columns, array tasks, placement, progress."""
