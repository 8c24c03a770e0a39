"""Events read once for everybody who shows them: frames, timelines, boards and live views are made of its spans."""
