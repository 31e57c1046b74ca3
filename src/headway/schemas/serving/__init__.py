"""Services in requests and answers: replicas, keys, figures, events.

Not here: the file of a service (`jobs.serving`)."""
