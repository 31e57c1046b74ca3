"""Use cases of billing: rounds, bills, invoices, budgets, notices. They apply rules to stored data.

Not here: the rules (`headway.billing`), collected facts (`services.billing.ledger`), what GPU time was used for
(`services.billing.reports`)."""
