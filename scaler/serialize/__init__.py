"""Turning functions, arguments, results and errors into bytes and back; the only package that pickles."""

from scaler.serialize.serializer import Serializer

__all__ = ["Serializer"]
