"""Analysis of recorded executions: DataFrames of one log or of many executions, and the timeline picture."""
