"""The MLflow server: its process, and the worker that repeats on it what jobs log.

Not here: calls of its REST API (`headway.services.mlflow`), its installation (`headway.sdk.mlflow.installation`)."""
