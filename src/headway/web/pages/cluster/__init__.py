"""Pages of a cluster: overview, nodes, incidents, events, storage, scaling, operations, cluster file.

Not here: jobs (`web.pages.jobs`)."""
