"""Strict parsing of what people write: YAML, types of fields, syntax rules of single values, and the path of each
error. Rules across fields of the cluster file are in `headway.clusterfile`."""
