"""Where the original has what runs tasks: see `scaler.compatibility`."""
