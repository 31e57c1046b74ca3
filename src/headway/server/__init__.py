"""The server process: reads its settings, creates the application and the backend, answers HTTP and runs the workers.
Use cases are in `headway.services`, endpoints in `headway.api`, pages in `headway.web`."""
