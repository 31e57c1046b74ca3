"""The endpoints of the REST API, one module per resource. An endpoint reads the request, calls one function of
`headway.services` and returns its result.

Not here: decisions (`headway.services`), models of requests and answers (`headway.schemas`)."""
