"""Configuration of Prometheus, Alertmanager and Grafana, and alert rules (data/alert_rules.yml). Requests to these
services are in `cluster.monitoring`."""
