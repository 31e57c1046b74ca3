"""Secrets of a cluster in the server's store, and the replacement of its MUNGE, JWT and SSH keys while jobs run.

Not here: secrets of jobs (`services.job_secrets`), encryption in the database (`store.db.sealing`)."""
