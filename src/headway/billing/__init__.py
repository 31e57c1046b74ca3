"""The rules of usage and money: invoices, chargeback, budgets, goodput, energy, capacity. Pure functions with exact
arithmetic. The data comes from `store.billing`; `services.billing` connects the two."""
