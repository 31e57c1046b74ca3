"""Requests that start work (jobs, commands, notebooks, pipelines) and their answers. Jobs that exist are in
`schemas.jobs`."""
