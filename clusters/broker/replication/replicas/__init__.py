"""What a broker does with its replicas whatever their role: what controller and disk report."""
