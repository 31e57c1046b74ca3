"""The snapshot of each cluster in memory, and the lists and differences made from it. Slurm is read once for all
viewers.

Not here: reading Slurm (`server.slurm_poller`), the queue (`services.queue`)."""
