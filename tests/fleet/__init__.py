"""A fleet of real hosts on one machine: network namespaces, each with its own address, sshd and Docker Engine.

By hand: `python -m tests.fleet up 4`, then `ssh -F $DIR/ssh_config h1`; see __main__.py.
"""
