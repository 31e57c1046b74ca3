"""Prometheus, Alertmanager and Grafana: their configuration, alert rules (data/rules.yml), and Headway's queries."""
