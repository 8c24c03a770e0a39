"""Use of recorded logs: replay without calls, verification, what-ifs, trials and explanations of values."""
