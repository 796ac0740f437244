"""joblib's own tests, and scikit-learn's results, under the backend "scaler": `python -m compat_tests.joblib`."""
