"""The REST API over HTTP: the FastAPI application, its endpoints, authentication and error answers.

Not here: use cases (`headway.services`), requests and answers (`headway.schemas`), the dashboard (`headway.web`)."""
