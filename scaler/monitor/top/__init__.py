"""`scaler_top`: what a terminal shows of a cluster. All but `app` is pure, and needs no Textual."""
