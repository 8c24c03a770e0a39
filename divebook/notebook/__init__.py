"""The Jupyter face: magics, the session behind them, and runs that show themselves."""
