"""Services of AWS, or servers that speak their protocols."""
