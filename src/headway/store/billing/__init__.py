"""Stored data about usage and cost: runs of jobs, machine lifetimes, prices, invoices, and sums over them."""
