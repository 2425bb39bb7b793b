"""The BitMall team: after-sales, product and linkage of an online shop. `team` holds it; a small made-up data set stands behind."""
