"""Pipelines: starts, retries and describes them, and reads what their steps recorded.

Not here: the pipeline file and the plan of its steps (`jobs.pipelines`), the program in their jobs (`node/pipeline_step`)."""
