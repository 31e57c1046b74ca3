"""What is shown of a job: columns, array tasks, placement, progress."""
