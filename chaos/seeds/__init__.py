"""What a seed decides and how it is run: plans, schedules of faults, reduction to what matters, transcripts."""
