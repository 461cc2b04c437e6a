"""The formats, pure: bytes in, values out, and back (C2SP tlog-tiles, signed notes, RFC 6962, RFC 8785). No I/O."""
