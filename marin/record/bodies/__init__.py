"""Bodies of events, by what they are about; :mod:`marin.record.events` has the list of all."""
