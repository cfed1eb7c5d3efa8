"""Tasks of a code location: their declarations, the assets and jobs made of them, their runs."""
