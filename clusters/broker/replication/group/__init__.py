"""The coordinator of consumer groups. Membership and commits change here."""
