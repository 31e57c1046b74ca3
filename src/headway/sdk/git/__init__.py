"""Cluster files from commits of Git repositories.

Not here: loading a cluster file of this machine (`sdk.cluster_file`)."""
