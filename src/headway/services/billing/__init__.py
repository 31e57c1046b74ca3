"""Billing reports: applies the rules of `headway.billing` to the facts in the store (invoices, chargeback, goodput,
notifications)."""
