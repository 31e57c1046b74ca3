"""Models of the cluster file as people write it, a section a module. Each checks its fields by themselves; rules that span
several fields are in clusterfile.rules."""
