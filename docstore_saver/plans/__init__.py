"""The operations, as generators without I/O."""
