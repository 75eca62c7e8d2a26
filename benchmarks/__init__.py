"""How we compare with peers: both sides measured in one run, on the same machine."""
