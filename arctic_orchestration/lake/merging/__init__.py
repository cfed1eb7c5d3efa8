"""Merging a group of files into fewer: by which strategy and engine, with deletes applied."""
