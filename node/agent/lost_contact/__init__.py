"""What a machine does without contact: a node ends its jobs when its lease expires, and the head answers for an absent server."""
