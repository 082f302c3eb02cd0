"""What users say about single functions, and how capture obeys."""
