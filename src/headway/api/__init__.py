"""The REST API: routers, authentication and errors. HTTP only; code that the web pages also need is in
`headway.services`."""
