"""Restricted network access for containers without a network: `proxy` checks hosts outside, `relay` leads to it
inside.
"""
