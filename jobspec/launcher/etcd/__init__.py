"""A node in etcd: its lease there, and the job's generation."""
