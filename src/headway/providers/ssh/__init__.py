"""The provider `ssh`: your own machines, listed in the cluster file. It assigns hosts to slots and surveys them; it
creates no machines.

Not here: claims, and changes on such machines (`cluster.owned`)."""
