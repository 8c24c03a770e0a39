"""The past of executions, read from their logs: as spans, as DataFrames, as a picture, as totals."""
