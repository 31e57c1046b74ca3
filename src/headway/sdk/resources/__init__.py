"""The parts of a client, one class per subject: `client.clusters`, `client.jobs`, `client.billing`, ..."""
