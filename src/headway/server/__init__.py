"""The server process: reads its settings, creates the application and the backend, answers HTTP and runs the workers.

Not here: use cases (`headway.services`), endpoints (`headway.api`), pages (`headway.web`)."""
