"""Strict parsing of user input: YAML, field types, syntax rules, and the path of each error. Nothing here is specific
to cluster files; see `headway.clusterfile`."""
