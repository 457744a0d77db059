"""Specs that jobctl writes: a starter, and those made from launch commands."""
