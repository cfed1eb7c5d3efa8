"""Putting merged files in the place of those that they were merged from, in one snapshot."""
