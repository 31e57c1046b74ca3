"""Use cases of billing: rounds, bills, invoices, budgets, notices. They apply the rules of `headway.billing` to the data of
`store.billing`. What GPU time was used for is in `reports`, the facts that are collected are in `ledger`."""
