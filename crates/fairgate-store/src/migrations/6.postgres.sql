-- The fleet: projects, tasks, agents and workspaces. Moments are microseconds since 1970, sizes are tokens.

-- One row. Every change of the fleet adds 1 to its version; with PostgreSQL, whoever changes the fleet locks it first.
CREATE TABLE fleet (
    one         INTEGER PRIMARY KEY CHECK (one = 1),
    version     BIGINT NOT NULL,
    made        BIGINT NOT NULL
);
INSERT INTO fleet (one, version, made) VALUES (1, 0, 0);

-- `made` is its place in the order in which projects were made. Weights are thousandths. `agent_max` is a JSON object: how many
-- agents of a type may work for it at once. `busy` says that it had a ready or running task when the fleet last changed.
-- The window's sums stand for the buckets up to `window_bucket`: the full ones, and the oldest, which fades.
CREATE TABLE fleet_projects (
    id              TEXT PRIMARY KEY,
    tenant          TEXT NOT NULL REFERENCES tenants (name),
    made            BIGINT NOT NULL,
    status          TEXT NOT NULL,
    weight          BIGINT NOT NULL,
    concurrency     BIGINT NOT NULL,
    exclusive       BOOLEAN NOT NULL,
    agent_max       TEXT NOT NULL,
    budget          BIGINT,
    busy            BOOLEAN NOT NULL,
    baseline        BIGINT NOT NULL,
    baseline_at     BIGINT NOT NULL,
    learned         BIGINT,
    window_bucket   BIGINT NOT NULL,
    window_tokens   BIGINT NOT NULL,
    window_oldest   BIGINT NOT NULL,
    window_completed BIGINT NOT NULL,
    created_at      BIGINT NOT NULL
);
CREATE INDEX fleet_projects_tenant ON fleet_projects (tenant);

-- What a project used in each bucket of the window, and how many of its tasks ended well.
CREATE TABLE fleet_usage (
    project     TEXT NOT NULL REFERENCES fleet_projects (id) ON DELETE CASCADE,
    bucket      BIGINT NOT NULL,
    tokens      BIGINT NOT NULL,
    completed   BIGINT NOT NULL,
    PRIMARY KEY (project, bucket)
);

-- `epoch` counts the claims; only the agent of the last one may speak for the task. `reserved` is what its claim set aside,
-- `used` what the claim used so far, `used_before` what earlier claims used. Texts stand last, the longest at the very end, so
-- that what rounds look at is found without reading them.
CREATE TABLE fleet_tasks (
    id              TEXT PRIMARY KEY,
    project         TEXT NOT NULL REFERENCES fleet_projects (id),
    made            BIGINT NOT NULL,
    state           TEXT NOT NULL,
    priority        BIGINT NOT NULL,
    estimate        BIGINT,
    retries         BIGINT NOT NULL,
    retries_max     BIGINT NOT NULL,
    open_needs      BIGINT NOT NULL,
    resume_after    BIGINT,
    workspace       TEXT,
    affinity        TEXT,
    affinity_wait   BIGINT NOT NULL,
    ready_at        BIGINT,
    epoch           BIGINT NOT NULL,
    ended_epoch     BIGINT NOT NULL,
    agent           TEXT,
    key_hash        BYTEA,
    lease_until     BIGINT,
    in_workspace    TEXT,
    reserved        BIGINT NOT NULL,
    used            BIGINT NOT NULL,
    used_before     BIGINT NOT NULL,
    calls           BIGINT NOT NULL,
    created_at      BIGINT NOT NULL,
    claimed_at      BIGINT,
    ended_at        BIGINT,
    title           TEXT NOT NULL,
    reason          TEXT,
    progress        TEXT,
    question        TEXT,
    answer          TEXT,
    result          TEXT,
    prompt          TEXT NOT NULL
);
CREATE INDEX fleet_tasks_ready ON fleet_tasks (project, priority, made) WHERE state = 'READY';
CREATE INDEX fleet_tasks_affinity ON fleet_tasks (state, affinity) WHERE affinity IS NOT NULL;
CREATE INDEX fleet_tasks_state ON fleet_tasks (state, project);
CREATE INDEX fleet_tasks_project ON fleet_tasks (project, made);
CREATE INDEX fleet_tasks_agent ON fleet_tasks (agent) WHERE agent IS NOT NULL;
CREATE INDEX fleet_tasks_lease ON fleet_tasks (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX fleet_tasks_resume ON fleet_tasks (resume_after) WHERE resume_after IS NOT NULL;
CREATE INDEX fleet_tasks_key ON fleet_tasks (key_hash) WHERE key_hash IS NOT NULL;

CREATE TABLE fleet_needs (
    task        TEXT NOT NULL REFERENCES fleet_tasks (id) ON DELETE CASCADE,
    needs       TEXT NOT NULL REFERENCES fleet_tasks (id),
    PRIMARY KEY (task, needs)
);
CREATE INDEX fleet_needs_needs ON fleet_needs (needs);

CREATE TABLE fleet_agents (
    id          TEXT PRIMARY KEY,
    kind        TEXT NOT NULL,
    hash        BYTEA NOT NULL UNIQUE,
    hint        TEXT NOT NULL,
    state       TEXT NOT NULL,
    reports     BOOLEAN NOT NULL,
    last_seen   BIGINT,
    created_at  BIGINT NOT NULL
);

CREATE TABLE fleet_workspaces (
    id          TEXT PRIMARY KEY,
    project     TEXT NOT NULL REFERENCES fleet_projects (id),
    path        TEXT NOT NULL,
    task        TEXT,
    agent       TEXT,
    created_at  BIGINT NOT NULL
);
CREATE INDEX fleet_workspaces_project ON fleet_workspaces (project, task);

-- What became of a task, step by step.
CREATE TABLE fleet_history (
    task        TEXT NOT NULL REFERENCES fleet_tasks (id) ON DELETE CASCADE,
    step        BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    from_state  TEXT NOT NULL,
    to_state    TEXT NOT NULL,
    epoch       BIGINT NOT NULL,
    actor       TEXT NOT NULL,
    reason      TEXT,
    PRIMARY KEY (task, step)
);

-- What a task's command printed, in pieces; `first_byte` counts from the claim's first.
CREATE TABLE fleet_logs (
    task        TEXT NOT NULL REFERENCES fleet_tasks (id) ON DELETE CASCADE,
    epoch       BIGINT NOT NULL,
    first_byte  BIGINT NOT NULL,
    bytes       BYTEA NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (task, epoch, first_byte)
);

-- Calls that a task's agent made with its task key.
ALTER TABLE attempts ADD COLUMN project TEXT;
ALTER TABLE attempts ADD COLUMN task TEXT;
ALTER TABLE attempts ADD COLUMN epoch BIGINT;
ALTER TABLE reservations ADD COLUMN project TEXT;
ALTER TABLE reservations ADD COLUMN task TEXT;
ALTER TABLE reservations ADD COLUMN epoch BIGINT;
CREATE INDEX reservations_task ON reservations (task) WHERE task IS NOT NULL;
