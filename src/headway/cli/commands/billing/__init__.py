"""Commands for usage, invoices, chargeback, goodput, budgets, energy and capacity.

Not here: prices of plans (`headway.catalog`)."""
