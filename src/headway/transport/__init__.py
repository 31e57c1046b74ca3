"""How commands reach a machine: the one function that starts processes (`process`), and the one that runs remote commands
(`ssh`)."""
