"""Requests to the Prometheus and the Alertmanager of a cluster's head."""
