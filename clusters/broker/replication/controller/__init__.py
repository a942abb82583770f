"""What the one broker does that is the controller. Elections and topics change here."""
