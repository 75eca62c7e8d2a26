"""What lasts: sessions and their events, and all that is kept about them."""
