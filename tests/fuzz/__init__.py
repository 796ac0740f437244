"""Coverage-guided fuzzing: `targets` says what is fed with bytes, `run` feeds it (`make fuzz`), `corpus` is what it found."""
