"""Request bodies, queries and answers as types, and how bodies become jobs and runs."""
