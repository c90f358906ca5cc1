"""The server: connections, transactions, its clock, notifications, leases, errors in our words."""
