"""What each kind of sink sees when something is killed between its taking an epoch and that epoch's checkpoint, in each mode."""
