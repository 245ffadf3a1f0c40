"""Rewrite patterns that several passes may use, by what they are about."""
