"""The MLflow tracking server of a job, on its node: keeps what the job logs in a file, and its numbers as metrics.

Not here: the file of metrics (`node/train/headway_train/metrics_file.py`)."""
