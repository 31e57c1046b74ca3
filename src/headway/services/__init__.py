"""Use cases that the API and the pages share, and who may run them. Clusters are reached only through
`cluster_backend`.

Not here: HTTP (`headway.api`), pages (`headway.web`), connections to clusters (`server.cluster_backend`)."""
