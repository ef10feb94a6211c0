"""The client of editd: finds a workspace and its daemon, and speaks to it.

Of the daemon's code it knows the contract, `editd.wire`, and nothing else.
"""
