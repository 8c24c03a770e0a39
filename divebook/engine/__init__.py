"""Engine rules as pure functions: from a workflow definition and an event log to the next instruction and the next
state.
"""
