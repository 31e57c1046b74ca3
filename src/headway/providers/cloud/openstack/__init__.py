"""CloudApi by the APIs of OpenStack: Keystone, Nova, Neutron, Glance and, where there is one, Cinder. Requests are plain
HTTP: two dozen calls need no SDK.

Not here: what a launch, a price or a refusal means for a cluster (`providers.cloud`)."""
