"""The actions of a machine without contact: a node ends its jobs when its lease expires, and the head's agent acts for
a server that does not answer.

Not here: two heads (`node/agent/failover`)."""
