"""Servers that jobctl runs on this machine: metrics for programs, and a page for people."""
