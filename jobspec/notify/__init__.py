"""Telling people what happens to a job: which events, in which words, and so that none is lost."""
