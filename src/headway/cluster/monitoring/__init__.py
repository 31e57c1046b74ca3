"""HTTP requests to Prometheus and Alertmanager on the head. Their configuration is rendered in `render.monitoring`."""
