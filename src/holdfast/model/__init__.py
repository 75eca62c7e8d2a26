"""The nouns of Holdfast: frozen values, made of the standard library alone."""
