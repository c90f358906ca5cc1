"""Authentication and access: tokens, roles, permissions by namespace."""
