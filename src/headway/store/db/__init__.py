"""The database: engine, tables, rows, transactions, advisory locks, migrations. The stored data is read and written in
`store.access`, `store.clusters`, `store.jobs` and `store.billing`."""
