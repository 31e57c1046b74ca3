"""What the server remembers of clusters, operations, people, jobs and incidents: one class a subject."""
