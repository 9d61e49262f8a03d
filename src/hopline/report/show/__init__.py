"""Showing facts: HTML and SVG, made of escaped text only. Nothing is read here."""
