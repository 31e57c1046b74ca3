"""View models of the queue's page: its address, filter buttons, table and column chooser.

Not here: which jobs are listed, and the columns (services.queue)."""
