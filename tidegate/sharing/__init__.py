"""What several replicas share through Redis: budgets, and what is in flight.

``courier`` talks to Redis and says at any time whether it can be asked; ``ledger.lua`` is what runs there;
``allowance`` is what the gate asks, and answers from this replica's own share where Redis does not; ``inflight`` is how
replicas say what they have in flight.
"""
