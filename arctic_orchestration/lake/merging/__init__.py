"""Merging a group of files into fewer: which way, by whose hands, with deletes applied."""
