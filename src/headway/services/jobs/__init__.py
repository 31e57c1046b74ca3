"""Use cases on jobs that the API and the pages share: submission, actions, logs, lineage, notebooks, pipelines."""
