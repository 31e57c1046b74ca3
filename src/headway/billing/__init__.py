"""The rules of usage and money: invoices, chargeback, budgets, goodput, energy, capacity. Pure functions with exact
arithmetic.

Not here: the data (`store.billing`), its collection and the use cases (`services.billing`)."""
