"""The REST API over HTTP: the FastAPI application, its endpoints, authentication and error answers. Use cases are in
`headway.services`, requests and answers in `headway.schemas`, the dashboard in `headway.web`."""
