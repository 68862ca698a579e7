"""Generated stubs of the wire contract (proto/generate.py)."""
