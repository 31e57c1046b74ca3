"""The facts of the store put through the rules of `headway.billing`: invoices, chargeback, goodput, notifications."""
