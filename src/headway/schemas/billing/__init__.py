"""Models of usage, invoices, chargeback, goodput, budgets, energy, capacity and prices of clouds, and their form as CSV.

Not here: how the figures are computed (`headway.billing`, `services.billing`)."""
