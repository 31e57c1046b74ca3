"""Commands for usage, invoices, chargeback, goodput, budgets, energy and capacity."""
