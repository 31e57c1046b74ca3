"""The workers of services: their rounds, and the reading of their figures.

Not here: the rules (`jobs.serving`), and what pages and the API share (`services.serving`)."""
