"""The intermediate representation between the spec and everything that is rendered from it."""
