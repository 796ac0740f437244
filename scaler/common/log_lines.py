"""What a line of the log looks like: people read it and scripts grep it, as `[INFO]2023-03-19 12:16:10-0400: text`."""

#: for `logging.Formatter`
LINE = "[%(levelname)s]%(asctime)s: %(message)s"
TIME = "%Y-%m-%d %H:%M:%S%z"
