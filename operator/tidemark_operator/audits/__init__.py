"""ReplicationAudits: the Job or CronJob of each, and what their runs said."""
