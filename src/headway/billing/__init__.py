"""Rules of usage and money: invoices, chargeback, budgets, goodput, energy, capacity. Pure and exact. Facts come from
`headway.store.billing`; `headway.services.billing` joins the two."""
