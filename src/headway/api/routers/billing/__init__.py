"""Endpoints of usage, invoices, budgets, cost estimates, goodput, energy and capacity."""
