"""Request and response models of the REST API, shared by the server and `headway.sdk`. Times are Unix seconds, sizes
MiB.

Not here: types inside the server (`headway.domain`), the conversion between the two (`headway.services`)."""
