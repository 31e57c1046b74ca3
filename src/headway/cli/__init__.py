"""The `headway` command: its entry point, the list of commands, the session with the server, and SSH from the user's
machine. It calls the server through `headway.sdk`.

Not here: rules (`headway.services`), requests over HTTP (`headway.sdk`)."""
