"""Use cases of billing: apply the rules of `headway.billing` to the data of `store.billing` (usage, invoices, budgets,
goodput, capacity, notifications)."""
