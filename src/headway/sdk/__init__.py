"""The typed client of the API: `Client`, `AsyncClient`, and job handles."""
