"""`holdfast chat`: a session at the terminal."""
