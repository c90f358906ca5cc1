"""What brokers carry: rates and latencies of the adapters, beside the bare client, and of whole runs."""
