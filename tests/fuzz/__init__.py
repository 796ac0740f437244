"""Coverage-guided fuzzing (`make fuzz`): `targets` are fed with bytes by `run`; `corpus` is what was found."""
