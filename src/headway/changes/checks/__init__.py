"""Checks of machines before an apply changes anything: what stops it and what only causes a warning. Pure."""
