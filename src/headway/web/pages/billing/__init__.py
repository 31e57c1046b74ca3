"""Pages of costs and teams.

Not here: the figures (`services.billing`)."""
