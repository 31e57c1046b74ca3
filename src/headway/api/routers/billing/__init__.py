"""Endpoints of usage, invoices, budgets, goodput, energy and capacity."""
