"""Use cases of jobs: submission, actions, logs, lineage, notebooks, pipelines. The work on the head is in
`headway.jobs`."""
