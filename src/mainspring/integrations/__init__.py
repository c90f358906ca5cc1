"""Mainspring inside other frameworks: `fastapi`, `flask`, `django`, `sqlalchemy`, `sentry`, and `pytest_plugin`.

Each imports its framework: import the one that you use. `refusals` is what the web frameworks share.
"""
