"""Figures over time: series of Prometheus, and the events that charts mark.

Not here: the queries themselves (`headway.cluster.monitoring.metric_queries`), metrics of trainings
(`headway.services.jobs.training_metrics`)."""
