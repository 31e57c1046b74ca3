"""Rented machines: launched where one is missing, and made ready for what is done with machines that you own.

Not here: what a cloud is asked (`providers.cloud`); surveys and claims (`cluster.owned`)."""
