"""The dashboard: a Bokeh server in a process of its own, which shows in a browser what `scaler_top` shows, and plots.

`content` says what each page has, `page` writes its HTML once, `live` sends what has changed since; `server` answers
requests that `scaler.monitor.access` has let through. Needs `scaler[dashboard]`.
"""
