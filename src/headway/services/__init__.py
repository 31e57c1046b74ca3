"""Use cases that the API and the pages share, and who may run them. No HTTP: endpoints are in `headway.api`, pages in
`headway.web`. Clusters are reached only through `cluster_backend`, which `server.cluster_backend` implements."""
