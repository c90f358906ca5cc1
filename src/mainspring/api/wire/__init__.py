"""Bytes of HTTP: what arrives, is decoded, answered and streamed."""
