"""Network access for places without a network: `proxy` outside checks names of hosts, `door` inside leads to it."""
