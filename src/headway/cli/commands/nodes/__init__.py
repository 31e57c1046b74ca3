"""Commands for nodes, incidents and injected faults."""
