"""What pages and commands show of a job: columns, array tasks, placement, progress."""
