"""What jobs log through MLflow: parsing the journals that the receivers on nodes write.

Not here: the receivers (`node/train/headway_train`), repeating the journals on the MLflow server (`headway.services.mlflow`)."""
