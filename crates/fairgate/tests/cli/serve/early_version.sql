-- What a version of six steps of the schema had written; the tests of the Debian package read it too. HASH is the hash of a key.
CREATE TABLE schema_version (version BIGINT NOT NULL);
INSERT INTO schema_version (version) VALUES (1), (2), (3), (4), (5), (6);
INSERT INTO tenant_groups VALUES ('staff', 100, 5);
INSERT INTO tenants (name, group_name, weight, disabled, created_at) VALUES ('chat', 'staff', 300, 0, 5);
INSERT INTO tenant_keys (id, tenant, name, hint, hash, weight, classes, created_at)
    VALUES ('k1', 'chat', 'web', 'fg-a', x'HASH', 100, '[]', 5);
INSERT INTO budgets VALUES ('tenant', 'chat', 'month', 'tokens', 'any', 1000000);
INSERT INTO reservations (request, group_name, tenant, key_id, model, tokens, at, provider_tokens)
    VALUES ('in-flight', 'staff', 'chat', 'k1', 'sim', 30, 1794731400000000, 30);
INSERT INTO attempts (request, attempt, last_attempt, started_at, group_name, tenant, key_id, route, streamed, model, pool,
        worker, estimate, input_tokens, cached_tokens, output_tokens, charged, usage_source, waited_us, total_us, status,
        outcome, brownout, provider_tokens)
    VALUES ('ended', 1, 1, 1794731400000000, 'staff', 'chat', 'k1', '/v1/chat/completions', 0, 'sim', 'sim',
        'sim', 60, 10, 0, 20, 30, 'reported', 1, 2, 200, 'completed', 0, 30);
INSERT INTO audit (at, actor, action, subject) VALUES (5, 'admin:ada', 'tenant.create', 'chat');
INSERT INTO fleet_projects VALUES ('web', 'chat', 1, 'ACTIVE', 2500, 4, 0, '{}', NULL, 0, 0, 5, NULL, 0, 0, 0, 0, 5);
INSERT INTO fleet_tasks (id, project, made, state, priority, retries, retries_max, open_needs, affinity_wait, ready_at, epoch,
        ended_epoch, reserved, used, used_before, calls, created_at, title, prompt)
    VALUES ('docs', 'web', 1, 'READY', 100, 0, 2, 0, 0, 5, 0, 0, 0, 0, 0, 0, 5, 'Write the page', 'Write the page');
INSERT INTO fleet_agents VALUES ('ada', 'any', x'0102', 'fga-', 'ACTIVE', 0, NULL, 5);
