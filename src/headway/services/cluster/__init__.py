"""Use cases on clusters that the API and the pages share: planning, status, nodes, incidents, storage, backups, metrics."""
