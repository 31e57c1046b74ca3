"""The typed Python client of the REST API: `Client`, `AsyncClient`, job handles, and what a client does before a
request (cluster file, upload of job files, local server).

Not here: commands and their output (`headway.cli`)."""
