"""A way out for places without a network: `proxy` asks an allow-list of names, `door` leads to it from inside."""
