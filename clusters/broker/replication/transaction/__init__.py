"""What producers need beyond one partition: their ids. The transaction coordinator is to come."""
