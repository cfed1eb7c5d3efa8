"""The page: what the REST API answers, as HTML for people; it changes nothing."""
