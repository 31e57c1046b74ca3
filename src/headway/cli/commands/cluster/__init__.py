"""Commands for a whole cluster: init, plan, apply, scale, roll, ls, status, secrets, down."""
