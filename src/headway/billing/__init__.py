"""Rules for usage and money: invoices, chargeback, budgets, goodput, energy, capacity. The functions here are pure and
the arithmetic is exact. The data comes from `headway.store.billing`; `headway.services.billing` connects the two."""
