"""From what people start training with today (commands, scripts, lists of variables) to a job spec."""
