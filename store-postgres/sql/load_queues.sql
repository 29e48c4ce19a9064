-- A page of queues after an id.
SELECT id, tenant, name, ended, namespace, task, lease_time, retry_limit, retry_delay, priority, max_size, ttl,
    dead_letter_queue, dlq_after_max_retries, delayed_processing, window_buffer, retention_enabled, retention_seconds,
    completed_retention_seconds, max_wait_time_seconds, min_pop_wait_time, encryption_enabled, dedup_window_seconds,
    revision, (extract(epoch FROM created_at) * 1000000)::bigint AS created
FROM queen.queues WHERE slot = $1 AND id > $2 ORDER BY id LIMIT $3
