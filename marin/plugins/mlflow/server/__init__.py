"""MLflow's own server as `marin ui` shows it.

serve.py       the server in this process, until it is told to stop
gate.py        nothing passes without the token of the printed address; described by gate.openapi.json
front.py       where its pages begin, and what they do not offer (front.js, front.css)
prerendering.py pages of finished runs, drawn before somebody opens them
"""
