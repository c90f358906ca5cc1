"""ZooKeeper by kazoo: sessions whose calls can be awaited, several servers, TLS, users."""
