"""The REST API: routers, authentication, errors. HTTP alone; what pages need too is in `headway.services`."""
