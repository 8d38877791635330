"""What the steps of a run call: one module per step, so that a step's code digest holds no other step's code."""
