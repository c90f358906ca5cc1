"""etcd, by the JSON gateway that every server has: requests, watches, several endpoints, TLS, users."""
