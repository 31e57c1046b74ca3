"""The endpoints of the REST API, one module per resource. An endpoint reads the request, calls one function of
`headway.services` and returns its result."""
