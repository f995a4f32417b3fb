"""How sound the nodes are: what GPU agents report, checked and kept.

``agents`` receives (gRPC), ``decode`` checks field by field, ``registry`` keeps the last report of each node (pure).
"""
