"""What planning and inference reach: the lines that learned agents are read against."""
