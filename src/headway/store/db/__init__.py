"""The database: engine, tables, rows, transactions, advisory locks, migrations. What is stored is in `store.access`,
`store.clusters`, `store.jobs` and `store.billing`."""
