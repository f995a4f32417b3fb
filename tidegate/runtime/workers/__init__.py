"""Several processes that decide behind one Envoy, each with the whole fleet in mind.

The main process holds the fleet, orders what happens to it and tells every worker; a worker decides on its own replica
and tells the main process what it reserved. ``team`` is the main process's side, ``worker`` the other one.
"""
