"""Column selection for k-means with a proved factor (Boutsidis and Magdon-Ismail 2012)."""
