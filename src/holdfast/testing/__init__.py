"""What users import to test their own agents, tools and stores."""
