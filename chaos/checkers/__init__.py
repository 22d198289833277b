"""Histories of what clients did and saw, and the checkers that give a verdict on them."""
