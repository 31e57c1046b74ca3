"""Strict reading of what people write: YAML, field types, syntax rules, and the path of each error. Knows no cluster file;
that is `headway.clusterfile`."""
