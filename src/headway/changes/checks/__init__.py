"""Checks of the observed machines before an apply: what refuses the apply and what only causes a warning. Pure. Checks
of the cluster file alone are in `headway.clusterfile`."""
