"""Workers that are tasks of an IBM Spectrum Symphony session: `scaler_symphony_cluster`.

    scheduler ◄── agent ──fork──► thin worker × N ──frames──► session process ──soamapi──► Symphony ──► container
                    ▲                  ▲                           │                                      │
                    └── Blocked ───────┘◄── a word of the row ─────┘◄──────────── side door (tcp) ────────┘

The agent is the one of any host. Its workers don't call the functions of rows: they hand them over (`forwarding`) to a
process that has the session (`process`, `session`), and wait. Why it is like this: docs/decisions/symphony.md.
"""
