"""Read models of event logs: spans, activity, failures, summaries, model requests and comparisons."""
