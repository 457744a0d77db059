"""Images on hosts: built, pulled, or copied from this machine or another host."""
