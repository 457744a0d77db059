"""Code and data of users on their way to hosts, and what hosts keep of them."""
