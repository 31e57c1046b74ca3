"""Jobs on this machine: their processes, their reports, their begin and end; on the head, jobs that the controller lost."""
