"""Failover: how long no node leads, by elector."""
