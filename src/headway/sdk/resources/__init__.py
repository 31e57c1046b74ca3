"""The parts of a client, one class a subject: `client.clusters`, `client.jobs`, `client.billing`, ..."""
