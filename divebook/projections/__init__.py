"""Events read once for all who show them: frames, timelines, boards and live views are made from spans."""
