"""What agents do in a workspace: look at files, change them, search them, run commands; said as they understand it."""
