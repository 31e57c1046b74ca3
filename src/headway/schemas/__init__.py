"""Request and response models of the REST API, shared by the server and `headway.sdk`. Times are Unix seconds, sizes
MiB. Types inside the server are in `headway.domain`."""
