"""What an operation of each kind does, one module a subject."""
