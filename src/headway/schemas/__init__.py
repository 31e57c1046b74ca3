"""Request and response models of the REST API, shared by the server and the client. Times are unix seconds, sizes MiB."""
