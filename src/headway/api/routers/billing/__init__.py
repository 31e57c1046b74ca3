"""Endpoints of usage, invoices, budgets, cost estimates, goodput, energy and capacity.

Not here: a team's share and limits (`api.routers.access`)."""
