"""Usage, invoices, chargeback, goodput, budgets, energy, capacity."""
