"""The server process: it composes the parts, answers HTTP and runs the workers."""
