"""Lower bounds of the k-means objective, and certificates made from these bounds."""
