"""What the files of a folder were at each look: taken, told apart, put back."""
