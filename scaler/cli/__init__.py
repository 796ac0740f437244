"""The programs: one small module each, all derived from the configuration classes in `scaler.config`."""
