"""Keys of a cluster: secrets in the server's store, and a change of the MUNGE key on machines that work."""
