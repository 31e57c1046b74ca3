"""The process that reads Slurm of one cluster, and its client in the server.

Not here: how Slurm is read (`headway.slurm`), what is made from it (`services.read_model`)."""
