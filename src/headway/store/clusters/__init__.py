"""What the server remembers of clusters: files, secrets, operations, incidents, datasets, activity."""
