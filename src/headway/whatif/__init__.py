"""What-if: the jobs of a trace replayed through the real slurmctld, with the configuration of a cluster file, in a container.

Not here: the library that owns slurmctld's clock and answers for its nodes (`node/whatif`), the rehearsal of an imported
site on real machines (`headway.slurm_import.replay`). When a job starts is decided by slurmctld alone."""
