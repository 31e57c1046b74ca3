"""Software environments: the job that builds a version, and the folder of versions that a cluster's machines share.

Not here: how a job uses one (`jobs.submission`), copies on nodes (`node/agent/environments`)."""
