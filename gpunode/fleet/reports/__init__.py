"""What a drift check found, in the forms that other programs read: JSON, JUnit, Prometheus."""
