"""Resources about the installation itself: health, cluster, audit, sessions, documents."""
