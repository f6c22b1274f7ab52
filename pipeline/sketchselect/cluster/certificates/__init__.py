"""Lower bounds of the k-means objective, and the certificates made of them."""
