"""Steps of one document: extraction, repair, language, rules, masks; each typed, each says why."""
