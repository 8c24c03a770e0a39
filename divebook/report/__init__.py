"""Reports: what an object shows of itself, as one model that is rendered as text, as HTML and for a terminal."""
