"""The database: engine, tables, rows, transactions, advisory locks, migrations. What is stored for whom is in `store.core`
and `store.billing`."""
