"""Restricted network access for containers without a network: `proxy` checks hosts outside, `door` leads to it
inside.
"""
