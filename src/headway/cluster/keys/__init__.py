"""Keys of a cluster: secrets in the server's store, and the replacement of the MUNGE key on running machines."""
