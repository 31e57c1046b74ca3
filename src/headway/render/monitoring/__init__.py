"""Prometheus, Alertmanager, Grafana: configuration, alert rules (data/rules.yml), and the queries that Headway asks."""
