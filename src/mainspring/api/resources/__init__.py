"""The endpoints, one file per resource or group of actions."""
