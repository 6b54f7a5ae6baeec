"""Rules of teams: ConfigMaps with a label, whose rules count in their own namespace."""
