"""Restricted network access for containers that have no network. `proxy` runs outside and checks the requested hosts;
`relay` runs inside the container and forwards connections to it.
"""
