"""The database itself: engine, tables, rows, transactions, advisory locks, migrations. Queries are in `store.access`,
`store.clusters`, `store.jobs` and `store.billing`."""
