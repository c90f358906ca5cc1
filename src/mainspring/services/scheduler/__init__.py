"""Planning: `elector` decides which node leads, `planner` fires jobs, `dispatcher` publishes due runs to a broker."""
