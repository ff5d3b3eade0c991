-- Tables and functions of clusters on PostgreSQL, version 1. Names of functions end in the version, so that members of
-- two releases can use the same tables.

-- One row for each cluster decides which generation is in force.
CREATE TABLE fairgate_clusters (
  name text PRIMARY KEY,
  generation bigint NOT NULL,
  -- Time at which a member asked for the next generation; null if none did.
  ending_since timestamptz
);

-- States that processes offer as the base of the next generation.
CREATE TABLE fairgate_cluster_reports (
  cluster text NOT NULL,
  process text NOT NULL,
  generation bigint NOT NULL,
  member bigint NOT NULL,
  position bigint NOT NULL,
  hash text NOT NULL,
  seen_at timestamptz NOT NULL,
  PRIMARY KEY (cluster, process)
);

CREATE TABLE fairgate_cluster_snapshots (
  cluster text NOT NULL,
  generation bigint NOT NULL,
  position bigint NOT NULL,
  hash text NOT NULL,
  taken_at timestamptz NOT NULL DEFAULT now(),
  bytes bytea NOT NULL,
  PRIMARY KEY (cluster, generation, position)
);

-- The log. It is unlogged: an append waits for no disk, and the table is empty after a crash of the server and on a
-- standby that takes over. Members detect this and begin the next generation.
CREATE UNLOGGED TABLE fairgate_cluster_log (
  cluster text NOT NULL,
  generation bigint NOT NULL,
  position bigint NOT NULL,
  stamp bigint NOT NULL,
  record bytea NOT NULL,
  PRIMARY KEY (cluster, generation, position)
);
ALTER TABLE fairgate_cluster_log ALTER COLUMN record SET STORAGE EXTERNAL;

-- All appends of a cluster and all changes of its row happen under this lock. It is held until the commit, so places
-- are in the order of commits.
CREATE FUNCTION fairgate_cluster_lock_1(p_cluster text) RETURNS void LANGUAGE sql AS $$
  SELECT pg_advisory_xact_lock(1718051683, hashtext(p_cluster));
$$;

-- Returns what is new after a place, about 4 MiB of it at most. It is STABLE, so all of its answer is of one moment.
CREATE FUNCTION fairgate_cluster_read_1(
  p_cluster text, p_generation bigint, p_after bigint, p_rows integer,
  OUT in_force bigint, OUT is_ending boolean, OUT last bigint,
  OUT positions bigint[], OUT stamps bigint[], OUT records bytea[]
) LANGUAGE plpgsql STABLE AS $$
BEGIN
  SELECT c.generation, c.ending_since IS NOT NULL INTO in_force, is_ending
    FROM fairgate_clusters c WHERE c.name = p_cluster;
  SELECT coalesce(max(l.position), 0) INTO last
    FROM fairgate_cluster_log l WHERE l.cluster = p_cluster AND l.generation = p_generation;
  IF in_force = p_generation AND last > p_after THEN
    SELECT array_agg(r.position ORDER BY r.position), array_agg(r.stamp ORDER BY r.position),
           array_agg(r.record ORDER BY r.position)
      INTO positions, stamps, records
      FROM (SELECT n.position, n.stamp, n.record,
                   sum(octet_length(n.record)) OVER (ORDER BY n.position) - octet_length(n.record) AS bytes_before
              FROM (SELECT l.position, l.stamp, l.record FROM fairgate_cluster_log l
                     WHERE l.cluster = p_cluster AND l.generation = p_generation AND l.position > p_after
                     ORDER BY l.position LIMIT p_rows) n) r
     WHERE r.bytes_before < 4194304;
  END IF;
END $$;

-- Appends a record, unless its generation is over or about to end, and returns what is new after a place.
CREATE FUNCTION fairgate_cluster_append_1(
  p_cluster text, p_generation bigint, p_after bigint, p_rows integer, p_record bytea, p_channel text,
  OUT in_force bigint, OUT is_ending boolean, OUT last bigint,
  OUT positions bigint[], OUT stamps bigint[], OUT records bytea[]
) LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fairgate_cluster_lock_1(p_cluster);
  SELECT c.generation, c.ending_since IS NOT NULL INTO in_force, is_ending
    FROM fairgate_clusters c WHERE c.name = p_cluster;
  IF in_force = p_generation AND NOT is_ending THEN
    SELECT coalesce(max(l.position), 0) + 1 INTO last
      FROM fairgate_cluster_log l WHERE l.cluster = p_cluster AND l.generation = p_generation;
    INSERT INTO fairgate_cluster_log (cluster, generation, position, stamp, record)
      VALUES (p_cluster, p_generation, last,
              (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, p_record);
    PERFORM pg_notify(p_channel, p_generation || ' ' || last || ' ' || pg_backend_pid());
  END IF;
  SELECT r.in_force, r.is_ending, r.last, r.positions, r.stamps, r.records
    INTO in_force, is_ending, last, positions, stamps, records
    FROM fairgate_cluster_read_1(p_cluster, p_generation, p_after, p_rows) r;
END $$;

-- States that a generation must end. Returns false if another one is in force.
CREATE FUNCTION fairgate_cluster_report_1(
  p_cluster text, p_process text, p_generation bigint, p_member bigint, p_position bigint, p_hash text,
  p_channel text
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fairgate_cluster_lock_1(p_cluster);
  PERFORM 1 FROM fairgate_clusters c WHERE c.name = p_cluster AND c.generation = p_generation;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  UPDATE fairgate_clusters c SET ending_since = clock_timestamp()
    WHERE c.name = p_cluster AND c.ending_since IS NULL;
  INSERT INTO fairgate_cluster_reports (cluster, process, generation, member, position, hash, seen_at)
    VALUES (p_cluster, p_process, p_generation, p_member, p_position, p_hash, clock_timestamp())
    ON CONFLICT (cluster, process) DO UPDATE SET generation = excluded.generation,
      member = excluded.member, position = excluded.position, hash = excluded.hash,
      seen_at = excluded.seen_at;
  PERFORM pg_notify(p_channel, 'row');
  RETURN true;
END $$;

-- Begins a generation on an empty log. Returns false if the one that it follows is not in force.
CREATE FUNCTION fairgate_cluster_begin_1(
  p_cluster text, p_ended bigint, p_next bigint, p_hash text, p_base bytea, p_channel text
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fairgate_cluster_lock_1(p_cluster);
  UPDATE fairgate_clusters c SET generation = p_next, ending_since = NULL
    WHERE c.name = p_cluster AND c.generation = p_ended;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  DELETE FROM fairgate_cluster_log l WHERE l.cluster = p_cluster;
  DELETE FROM fairgate_cluster_reports r WHERE r.cluster = p_cluster;
  DELETE FROM fairgate_cluster_snapshots s WHERE s.cluster = p_cluster;
  INSERT INTO fairgate_cluster_snapshots (cluster, generation, position, hash, bytes)
    VALUES (p_cluster, p_next, 0, p_hash, p_base);
  PERFORM pg_notify(p_channel, 'row');
  RETURN true;
END $$;

-- Stores a snapshot and removes all but the last two. Returns false if another generation is in force.
CREATE FUNCTION fairgate_cluster_snapshot_1(
  p_cluster text, p_generation bigint, p_position bigint, p_hash text, p_bytes bytea
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
  PERFORM fairgate_cluster_lock_1(p_cluster);
  PERFORM 1 FROM fairgate_clusters c WHERE c.name = p_cluster AND c.generation = p_generation;
  IF NOT FOUND THEN
    RETURN false;
  END IF;
  INSERT INTO fairgate_cluster_snapshots (cluster, generation, position, hash, bytes)
    VALUES (p_cluster, p_generation, p_position, p_hash, p_bytes)
    ON CONFLICT (cluster, generation, position) DO NOTHING;
  DELETE FROM fairgate_cluster_snapshots s
    WHERE s.cluster = p_cluster AND (s.generation, s.position) NOT IN (
      SELECT k.generation, k.position FROM fairgate_cluster_snapshots k WHERE k.cluster = p_cluster
       ORDER BY k.generation DESC, k.position DESC LIMIT 2);
  RETURN true;
END $$;
