"""Who asks and what they may do: tokens, roles, permissions by namespace."""
