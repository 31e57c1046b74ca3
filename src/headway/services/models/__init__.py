"""Models: versions in MLflow's registry, their files, approvals and promotions.

Not here: gates and manifests as values (`jobs.promotions`), calls of MLflow's REST API (`services.mlflow`)."""
