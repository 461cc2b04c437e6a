"""The command line: parse, call, print. The only package that imports click; nothing is decided here."""
