"""Restricted network access for containers without a network: `proxy` runs outside and checks hosts, `door` runs
inside.
"""
