"""The methods of the protocol, one module for each family."""
