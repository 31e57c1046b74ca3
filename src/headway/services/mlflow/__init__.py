"""MLflow: the workspace of each team, and repeating on the MLflow server what jobs log.

Not here: the MLflow server's process (`headway.server.mlflow`), parsing of journals (`headway.jobs.mlflow`)."""
