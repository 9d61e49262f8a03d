"""Hopline: an actor network in which every message carries its own itinerary, and the tools to read them."""

__version__ = "0.1.0"
