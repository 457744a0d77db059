"""The launchers of a job to each other: heartbeats, leases, and the orders that they begin together."""
