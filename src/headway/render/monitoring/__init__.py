"""Configuration of Prometheus, Alertmanager and Grafana, and alert rules (data/alert_rules.yml).

Not here: requests to these services (`cluster.monitoring`)."""
