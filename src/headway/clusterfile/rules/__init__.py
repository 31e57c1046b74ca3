"""Rules across fields of a cluster file.

Not here: rules of one field (`clusterfile.models`), rules of node groups (`clusterfile.groups`)."""
