"""Secrets of jobs: API keys that people and teams store, that jobs get as files, and that logs do not show.

Not here: keys of clusters (`cluster.keys`), encryption (`store.db.sealing`)."""
