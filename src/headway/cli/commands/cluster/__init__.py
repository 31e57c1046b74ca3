"""init, plan, apply, scale, roll, ls, status, secrets, down."""
