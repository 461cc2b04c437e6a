"""A judge of published runs that needs a browser, or node, and nothing of this repository: a second implementation of
the bytes of log and store and of exact arithmetic, which shares no code with the first. ``check.mjs`` is all of it;
``check.html`` is the page around it."""
