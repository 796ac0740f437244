"""The programs: one small module each. Those that run for long are made from the classes of `scaler.config`."""
