"""What a log is good for once it is written: driven again without a call, forked, stepped through, explained."""
