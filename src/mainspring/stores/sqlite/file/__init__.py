"""The file: threads, transactions, syncs, and how processes that share it notice each other."""
