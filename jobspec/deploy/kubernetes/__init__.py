"""A job in a Kubernetes cluster: applied, looked at, followed and taken down. Its operator owns recovery there."""
