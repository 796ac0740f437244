"""The wire: messages as plain data, their Cap'n Proto codec, and the channel that makes them reliable."""
