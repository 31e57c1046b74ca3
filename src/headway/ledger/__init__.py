"""Usage, prices, invoices, chargeback, goodput, budgets, energy and capacity, as pure rules over what the store kept."""
