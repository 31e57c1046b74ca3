"""Services as the server and the proxy on the head know them: routes, limits, figures.

Not here: the rules of replicas (`jobs.serving`)."""
