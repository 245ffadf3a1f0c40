"""Oarlock: one small adapter takes a new accelerator to certified AI programs."""

__version__ = "0.1.0"
