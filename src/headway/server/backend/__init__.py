"""The real `services.cluster_backend`: what requests and workers do to clusters, on connections that are kept open."""
