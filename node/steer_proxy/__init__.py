"""Makes the HAProxy of a head carry the traffic of services. Sent over SSH each time, nothing of it stays on the head.

Not here: what the servers and keys are to be (`headway.services.serving`), reading the requests that the proxy has answered
(`node/programs/read_service_metrics.py`)."""
