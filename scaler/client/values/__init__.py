"""Values on their way between a client and the cluster: arguments, uploads that are recognised, stores, results."""
