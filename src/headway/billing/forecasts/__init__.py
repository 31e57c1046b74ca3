"""Forecasts from the ledger: GPU-hours that jobs will use, and how long jobs will wait.

Not here: the forecast of spending within a month (`billing.spending`)."""
