"""HTTP requests to Prometheus and Alertmanager on the head.

Not here: their configuration (`render.monitoring`), the metrics themselves (`node/agent/metrics`)."""
