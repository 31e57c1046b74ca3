"""plan, apply, status, scale, roll, down."""
