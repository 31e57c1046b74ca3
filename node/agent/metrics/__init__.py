"""Metrics of the machine and its GPUs for Prometheus, and the HTTP endpoint that serves them.

Not here: reading GPUs (`node/agent/gpu`), Prometheus's configuration (`render.monitoring`)."""
