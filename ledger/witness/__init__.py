"""Those who vouch for a log: witnesses, quorums of them, time stamps."""
