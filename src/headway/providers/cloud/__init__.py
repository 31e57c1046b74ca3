"""Clouds: machines that Headway rents. `api` is what a cloud must offer, and each cloud has a package that implements it.

Not here: what is done on the machines (`cluster.owned`, which treats them like machines that you own)."""
