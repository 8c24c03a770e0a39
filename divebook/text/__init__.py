"""What people see of values, times and durations, and what they must not see: the lowest layer above the errors."""
