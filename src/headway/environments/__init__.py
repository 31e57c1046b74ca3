"""Software environments: the job that builds a version, and the folder of versions that a cluster's machines share."""
