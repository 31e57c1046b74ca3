"""What happens when a node, a head or the server is not heard."""
