"""Which worker gets which run: claims, gates, lines, leases, deliveries."""
