-- The tables of the runtime are named after it.
ALTER TABLE agent_instance RENAME TO runtime_instance;
ALTER TABLE agent_sandboxes RENAME TO runtime_sandboxes;
ALTER TABLE agent_snapshots RENAME TO runtime_snapshots;
ALTER TABLE agent_jobs RENAME TO runtime_jobs;
ALTER TABLE agent_job_callbacks RENAME TO runtime_job_callbacks;
ALTER TABLE agent_sessions RENAME TO runtime_sessions;
ALTER TABLE agent_messages RENAME TO runtime_messages;
ALTER TABLE agent_executions RENAME TO runtime_executions;
