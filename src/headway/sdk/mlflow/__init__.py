"""The commands `headway mlflow`: installs the MLflow server, opens its page.

Not here: running it (`headway.server.mlflow`)."""
