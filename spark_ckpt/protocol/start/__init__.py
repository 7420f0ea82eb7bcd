"""How a run begins: from nothing, from a checkpoint, from what a person chose, or in the place of a coordinator that died."""
