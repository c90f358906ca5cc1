"""The tasks that Mainspring itself provides, how programs are isolated, and the limits of tasks."""
