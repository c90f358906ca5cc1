"""The tasks that Mainspring itself provides, and how programs are isolated."""
