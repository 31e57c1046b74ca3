"""The queue of a cluster, for API and pages: its columns, the query, search and order, and why jobs wait. Made from the snapshots
of `services.read_model`; nothing here reads Slurm."""
