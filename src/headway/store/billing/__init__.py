"""Stored data about usage and cost: runs of jobs, machine lifetimes, prices, invoices, and sums over them.

Not here: what is computed from them (`headway.billing`)."""
