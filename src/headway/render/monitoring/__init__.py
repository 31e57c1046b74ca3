"""Prometheus, Alertmanager and Grafana: their configuration, alert rules (data/alert_rules.yml), and Headway's queries."""
