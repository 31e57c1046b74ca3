"""The database itself: engine, tables, rows, transactions, advisory locks, migrations.

Not here: queries (`store.access`, `store.clusters`, `store.jobs`, `store.billing`)."""
