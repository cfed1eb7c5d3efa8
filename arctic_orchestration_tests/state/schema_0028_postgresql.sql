CREATE TABLE arctic_compaction_queues (
  name TEXT NOT NULL,
  capacity INTEGER NOT NULL,
  level INTEGER NOT NULL,
  share INTEGER NOT NULL,
  max_workers INTEGER NOT NULL,
  state TEXT DEFAULT 'open' NOT NULL,
  execution_timeout_seconds INTEGER DEFAULT '7200' NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_compaction_queues PRIMARY KEY (name)
);
CREATE TABLE arctic_compaction_catalog (
  id INTEGER NOT NULL,
  identity TEXT NOT NULL,
  since TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_compaction_catalog PRIMARY KEY (id)
);
CREATE TABLE arctic_compaction_workers (
  id TEXT NOT NULL,
  name TEXT NOT NULL,
  queues TEXT NOT NULL,
  parallelism INTEGER NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  started_at TIMESTAMP WITH TIME ZONE NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
  "order" TEXT DEFAULT 'run' NOT NULL,
  memory BIGINT,
  version TEXT DEFAULT '' NOT NULL,
  labels TEXT DEFAULT '{}' NOT NULL,
  CONSTRAINT pk_arctic_compaction_workers PRIMARY KEY (id)
);
CREATE TABLE arctic_compaction_records (
  id BIGSERIAL NOT NULL,
  table_name TEXT NOT NULL,
  snapshot_id BIGINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  tasks TEXT NOT NULL,
  ways TEXT NOT NULL,
  files_in INTEGER NOT NULL,
  files_out INTEGER NOT NULL,
  delete_files_removed INTEGER NOT NULL,
  bytes_in BIGINT NOT NULL,
  bytes_out BIGINT NOT NULL,
  rows BIGINT NOT NULL,
  rows_deleted BIGINT NOT NULL,
  merge_seconds FLOAT NOT NULL,
  waited_seconds FLOAT NOT NULL,
  CONSTRAINT pk_arctic_compaction_records PRIMARY KEY (id),
  CONSTRAINT uq_arctic_compaction_records_table_name_snapshot_id UNIQUE (table_name, snapshot_id)
);
CREATE INDEX ix_arctic_compaction_records_at ON arctic_compaction_records (at);
CREATE TABLE arctic_consumers (
  id BIGSERIAL NOT NULL,
  cluster TEXT NOT NULL,
  name TEXT NOT NULL,
  asset TEXT NOT NULL,
  start TEXT NOT NULL,
  since TIMESTAMP WITH TIME ZONE,
  until TIMESTAMP WITH TIME ZONE,
  storage_id TEXT,
  position TEXT,
  version BIGINT DEFAULT '0' NOT NULL,
  resets BIGINT DEFAULT '0' NOT NULL,
  at_end BOOLEAN DEFAULT false NOT NULL,
  read_at TIMESTAMP WITH TIME ZONE,
  next_number BIGINT DEFAULT '1' NOT NULL,
  next_token BIGINT DEFAULT '1' NOT NULL,
  max_attempts INTEGER NOT NULL,
  retry_seconds FLOAT NOT NULL,
  lease_seconds FLOAT NOT NULL,
  working_set INTEGER NOT NULL,
  passed_over BIGINT DEFAULT '0' NOT NULL,
  passed_over_reason TEXT,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_consumers PRIMARY KEY (id),
  CONSTRAINT uq_arctic_consumers_cluster_name UNIQUE (cluster, name)
);
CREATE TABLE arctic_tasks (
  task TEXT NOT NULL,
  owner TEXT,
  token BIGINT DEFAULT '0' NOT NULL,
  acquired_at TIMESTAMP WITH TIME ZONE,
  expires_at TIMESTAMP WITH TIME ZONE,
  begun_at TIMESTAMP WITH TIME ZONE,
  cluster TEXT,
  location TEXT,
  run_id TEXT,
  submission VARCHAR(26),
  last_success_at TIMESTAMP WITH TIME ZONE,
  last_acquired_at TIMESTAMP WITH TIME ZONE,
  last_success_run TEXT,
  last_success_cluster TEXT,
  last_token BIGINT,
  CONSTRAINT pk_arctic_tasks PRIMARY KEY (task)
);
CREATE TABLE arctic_task_locations (
  cluster TEXT NOT NULL,
  location TEXT NOT NULL,
  digest TEXT,
  ticked_at TIMESTAMP WITH TIME ZONE,
  trouble TEXT,
  storage_id TEXT,
  CONSTRAINT pk_arctic_task_locations PRIMARY KEY (cluster, location)
);
CREATE TABLE arctic_task_definitions (
  task TEXT NOT NULL,
  cluster TEXT NOT NULL,
  location TEXT NOT NULL,
  batch TEXT,
  spec TEXT NOT NULL,
  digest TEXT NOT NULL,
  declared_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_task_definitions PRIMARY KEY (task, cluster, location)
);
CREATE INDEX ix_arctic_task_definitions_cluster_location ON arctic_task_definitions (cluster, location);
CREATE INDEX ix_arctic_task_definitions_batch ON arctic_task_definitions (batch);
CREATE TABLE arctic_task_publications (
  task TEXT NOT NULL,
  token BIGINT NOT NULL,
  submission VARCHAR(26),
  run_id TEXT,
  cluster TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_task_publications PRIMARY KEY (task, token)
);
CREATE INDEX ix_arctic_task_publications_at ON arctic_task_publications (at);
CREATE TABLE arctic_skipped_tasks (
  task TEXT NOT NULL,
  reason TEXT NOT NULL,
  by TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_skipped_tasks PRIMARY KEY (task)
);
CREATE TABLE arctic_task_submissions (
  id VARCHAR(26) NOT NULL,
  task TEXT NOT NULL,
  cluster TEXT NOT NULL,
  location TEXT NOT NULL,
  batch TEXT,
  group_id VARCHAR(26) NOT NULL,
  by TEXT NOT NULL,
  wanted_by VARCHAR(26),
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  state_at TIMESTAMP WITH TIME ZONE NOT NULL,
  required_since TIMESTAMP WITH TIME ZONE NOT NULL,
  force BOOLEAN NOT NULL,
  by_hand BOOLEAN NOT NULL,
  submits_parents BOOLEAN NOT NULL,
  submitted_at TIMESTAMP WITH TIME ZONE NOT NULL,
  next_check_at TIMESTAMP WITH TIME ZONE,
  deadline_at TIMESTAMP WITH TIME ZONE,
  attempt INTEGER DEFAULT '0' NOT NULL,
  silences INTEGER DEFAULT '0' NOT NULL,
  token BIGINT,
  run_id TEXT,
  shares VARCHAR(26),
  ended_at TIMESTAMP WITH TIME ZONE,
  reported_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_arctic_task_submissions PRIMARY KEY (id)
);
CREATE INDEX ix_arctic_task_submissions_unreported ON arctic_task_submissions (cluster, ended_at) WHERE ended_at is not null and reported_at is null;
CREATE INDEX ix_arctic_task_submissions_group_id ON arctic_task_submissions (group_id);
CREATE INDEX ix_arctic_task_submissions_due ON arctic_task_submissions (cluster, location, next_check_at) WHERE ended_at is null;
CREATE INDEX ix_arctic_task_submissions_task_submitted_at ON arctic_task_submissions (task, submitted_at);
CREATE INDEX ix_arctic_task_submissions_ended_at ON arctic_task_submissions (ended_at);
CREATE INDEX ix_arctic_task_submissions_live ON arctic_task_submissions (task) WHERE ended_at is null;
CREATE TABLE arctic_task_events (
  id BIGSERIAL NOT NULL,
  task TEXT NOT NULL,
  submission VARCHAR(26),
  cluster TEXT NOT NULL,
  location TEXT,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  step TEXT NOT NULL,
  reason TEXT NOT NULL,
  details TEXT NOT NULL,
  CONSTRAINT pk_arctic_task_events PRIMARY KEY (id)
);
CREATE INDEX ix_arctic_task_events_submission_id ON arctic_task_events (submission, id);
CREATE INDEX ix_arctic_task_events_task_id ON arctic_task_events (task, id);
CREATE INDEX ix_arctic_task_events_at ON arctic_task_events (at);
CREATE TABLE arctic_queue_pauses (
  cluster TEXT NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  paused BOOLEAN NOT NULL,
  reason TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  actor TEXT DEFAULT '' NOT NULL,
  CONSTRAINT pk_arctic_queue_pauses PRIMARY KEY (cluster, kind, name)
);
CREATE TABLE arctic_queue_levels (
  cluster TEXT NOT NULL,
  run_id TEXT NOT NULL,
  level INTEGER NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_queue_levels PRIMARY KEY (cluster, run_id)
);
CREATE TABLE arctic_queue_waits (
  cluster TEXT NOT NULL,
  run_id TEXT NOT NULL,
  gate TEXT NOT NULL,
  reason TEXT NOT NULL,
  since TIMESTAMP WITH TIME ZONE NOT NULL,
  cause TEXT DEFAULT '' NOT NULL,
  program TEXT DEFAULT '' NOT NULL,
  CONSTRAINT pk_arctic_queue_waits PRIMARY KEY (cluster, run_id)
);
CREATE TABLE arctic_queue_passes (
  cluster TEXT NOT NULL,
  passed_at TIMESTAMP WITH TIME ZONE NOT NULL,
  problem TEXT,
  CONSTRAINT pk_arctic_queue_passes PRIMARY KEY (cluster)
);
CREATE TABLE arctic_tokens (
  id VARCHAR(26) NOT NULL,
  cluster TEXT NOT NULL,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  scopes TEXT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  created_by TEXT NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE,
  revoked_at TIMESTAMP WITH TIME ZONE,
  used_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_arctic_tokens PRIMARY KEY (id),
  CONSTRAINT uq_arctic_tokens_cluster_name UNIQUE (cluster, name)
);
CREATE TABLE arctic_announcements (
  id VARCHAR(26) NOT NULL,
  key TEXT NOT NULL,
  digest TEXT NOT NULL,
  position BIGINT NOT NULL,
  begun_at TIMESTAMP WITH TIME ZONE NOT NULL,
  written_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_arctic_announcements PRIMARY KEY (id),
  CONSTRAINT uq_arctic_announcements_key UNIQUE (key)
);
CREATE INDEX ix_arctic_announcements_begun_at ON arctic_announcements (begun_at);
CREATE TABLE arctic_locations (
  id BIGSERIAL NOT NULL,
  cluster TEXT NOT NULL,
  name TEXT NOT NULL,
  position TEXT,
  storage_id TEXT,
  definitions_digest TEXT,
  next_event BIGINT DEFAULT '1' NOT NULL,
  ticked_at TIMESTAMP WITH TIME ZONE,
  owner TEXT,
  CONSTRAINT pk_arctic_locations PRIMARY KEY (id),
  CONSTRAINT uq_arctic_locations_cluster_name UNIQUE (cluster, name)
);
CREATE TABLE arctic_schema_upgrades (
  revision TEXT NOT NULL,
  package TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_schema_upgrades PRIMARY KEY (revision)
);
CREATE TABLE arctic_unreadable_events (
  id BIGSERIAL NOT NULL,
  cluster TEXT NOT NULL,
  reader TEXT NOT NULL,
  event_id BIGINT NOT NULL,
  event TEXT NOT NULL,
  found_at TIMESTAMP WITH TIME ZONE NOT NULL,
  reason TEXT NOT NULL,
  CONSTRAINT pk_arctic_unreadable_events PRIMARY KEY (id)
);
CREATE INDEX ix_arctic_unreadable_events_cluster_id ON arctic_unreadable_events (cluster, id);
CREATE TABLE arctic_resources (
  name TEXT NOT NULL,
  CONSTRAINT pk_arctic_resources PRIMARY KEY (name)
);
CREATE TABLE arctic_launches (
  resource TEXT NOT NULL,
  holder TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_launches PRIMARY KEY (resource, holder)
);
CREATE INDEX ix_arctic_launches_at ON arctic_launches (at);
CREATE INDEX ix_arctic_launches_resource_at ON arctic_launches (resource, at);
CREATE TABLE arctic_run_ends (
  resource TEXT NOT NULL,
  status TEXT NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_run_ends PRIMARY KEY (resource, status)
);
CREATE TABLE arctic_audit (
  id BIGSERIAL NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  cluster TEXT NOT NULL,
  actor TEXT NOT NULL,
  feature TEXT NOT NULL,
  action TEXT NOT NULL,
  subject TEXT NOT NULL,
  details TEXT NOT NULL,
  before TEXT,
  after TEXT,
  address TEXT DEFAULT '' NOT NULL,
  request_id TEXT DEFAULT '' NOT NULL,
  CONSTRAINT pk_arctic_audit PRIMARY KEY (id)
);
CREATE INDEX ix_arctic_audit_at ON arctic_audit (at);
CREATE TABLE arctic_compaction_tables (
  name TEXT NOT NULL,
  mapped_to TEXT,
  property_queue TEXT,
  queue TEXT NOT NULL,
  queue_reason TEXT NOT NULL,
  level INTEGER DEFAULT '0' NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
  gone_at TIMESTAMP WITH TIME ZONE,
  refused TEXT,
  due_since TIMESTAMP WITH TIME ZONE,
  due_reason TEXT,
  due_number BIGINT DEFAULT '0' NOT NULL,
  looked_at TIMESTAMP WITH TIME ZONE,
  looked_snapshot_id BIGINT,
  looked_reason TEXT,
  observed_at TIMESTAMP WITH TIME ZONE,
  observed_snapshot_id BIGINT,
  observed_reason TEXT,
  version BIGINT DEFAULT '0' NOT NULL,
  failures INTEGER DEFAULT '0' NOT NULL,
  rests_until TIMESTAMP WITH TIME ZONE,
  rest_reason TEXT,
  commit_owner TEXT,
  commit_token BIGINT DEFAULT '0' NOT NULL,
  commit_expires_at TIMESTAMP WITH TIME ZONE,
  next_commit_at TIMESTAMP WITH TIME ZONE,
  commit_trouble TEXT,
  CONSTRAINT pk_arctic_compaction_tables PRIMARY KEY (name),
  CONSTRAINT fk_arctic_compaction_tables_mapped_to FOREIGN KEY(mapped_to) REFERENCES arctic_compaction_queues (name),
  CONSTRAINT fk_arctic_compaction_tables_queue FOREIGN KEY(queue) REFERENCES arctic_compaction_queues (name)
);
CREATE INDEX ix_arctic_compaction_tables_queue ON arctic_compaction_tables (queue);
CREATE INDEX ix_arctic_compaction_tables_due_since ON arctic_compaction_tables (due_since);
CREATE INDEX ix_arctic_compaction_tables_mapped_to ON arctic_compaction_tables (mapped_to);
CREATE TABLE arctic_consumer_partitions (
  consumer_id BIGINT NOT NULL,
  partition TEXT NOT NULL,
  state TEXT NOT NULL,
  state_at TIMESTAMP WITH TIME ZONE NOT NULL,
  reason TEXT NOT NULL,
  place BIGINT NOT NULL,
  number BIGINT NOT NULL,
  arrivals INTEGER NOT NULL,
  first_at TIMESTAMP WITH TIME ZONE NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  details TEXT NOT NULL,
  next_number BIGINT,
  next_arrivals INTEGER,
  next_first_at TIMESTAMP WITH TIME ZONE,
  next_at TIMESTAMP WITH TIME ZONE,
  next_details TEXT,
  event_id BIGINT NOT NULL,
  event_at TIMESTAMP WITH TIME ZONE NOT NULL,
  token BIGINT,
  attempts INTEGER DEFAULT '0' NOT NULL,
  not_before TIMESTAMP WITH TIME ZONE,
  existed BOOLEAN DEFAULT false NOT NULL,
  held BOOLEAN DEFAULT false NOT NULL,
  acknowledged_at TIMESTAMP WITH TIME ZONE,
  acknowledgements INTEGER DEFAULT '0' NOT NULL,
  CONSTRAINT pk_arctic_consumer_partitions PRIMARY KEY (consumer_id, partition),
  CONSTRAINT fk_arctic_consumer_partitions_consumer_id FOREIGN KEY(consumer_id) REFERENCES arctic_consumers (id)
);
CREATE INDEX ix_arctic_consumer_partitions_leased ON arctic_consumer_partitions (consumer_id, token) WHERE state = 'leased';
CREATE INDEX ix_arctic_consumer_partitions_waiting ON arctic_consumer_partitions (consumer_id, place) WHERE state = 'waiting';
CREATE TABLE arctic_consumer_leases (
  consumer_id BIGINT NOT NULL,
  token BIGINT NOT NULL,
  owner TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  partitions INTEGER NOT NULL,
  taken_at TIMESTAMP WITH TIME ZONE NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_arctic_consumer_leases PRIMARY KEY (consumer_id, token),
  CONSTRAINT fk_arctic_consumer_leases_consumer_id FOREIGN KEY(consumer_id) REFERENCES arctic_consumers (id)
);
CREATE INDEX ix_arctic_consumer_leases_live ON arctic_consumer_leases (consumer_id, expires_at) WHERE state = 'live';
CREATE TABLE arctic_task_waits (
  submission VARCHAR(26) NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  parent_submission VARCHAR(26),
  since TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_task_waits PRIMARY KEY (submission, kind, name),
  CONSTRAINT fk_arctic_task_waits_submission FOREIGN KEY(submission) REFERENCES arctic_task_submissions (id) ON DELETE CASCADE
);
CREATE INDEX ix_arctic_task_waits_kind_name ON arctic_task_waits (kind, name);
CREATE TABLE arctic_location_inventories (
  location_id BIGINT NOT NULL,
  inventory TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_location_inventories PRIMARY KEY (location_id),
  CONSTRAINT fk_arctic_location_inventories_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id)
);
CREATE TABLE arctic_schedules (
  id VARCHAR(26) NOT NULL,
  location_id BIGINT NOT NULL,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  origin TEXT NOT NULL,
  status TEXT NOT NULL,
  spec TEXT NOT NULL,
  problem TEXT,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
  status_at TIMESTAMP WITH TIME ZONE NOT NULL,
  declared TEXT,
  declared_digest TEXT,
  counts_from TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_arctic_schedules PRIMARY KEY (id),
  CONSTRAINT uq_arctic_schedules_location_id_name UNIQUE (location_id, name),
  CONSTRAINT fk_arctic_schedules_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id)
);
CREATE TABLE arctic_deleted_schedules (
  location_id BIGINT NOT NULL,
  name TEXT NOT NULL,
  declared_digest TEXT NOT NULL,
  CONSTRAINT pk_arctic_deleted_schedules PRIMARY KEY (location_id, name),
  CONSTRAINT fk_arctic_deleted_schedules_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id)
);
CREATE TABLE arctic_schedule_history (
  id BIGSERIAL NOT NULL,
  location_id BIGINT NOT NULL,
  schedule_id VARCHAR(26) NOT NULL,
  name TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  action TEXT NOT NULL,
  version INTEGER NOT NULL,
  reason TEXT NOT NULL,
  actor TEXT DEFAULT '' NOT NULL,
  CONSTRAINT pk_arctic_schedule_history PRIMARY KEY (id),
  CONSTRAINT fk_arctic_schedule_history_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id)
);
CREATE INDEX ix_arctic_schedule_history_location_id_name_id ON arctic_schedule_history (location_id, name, id);
CREATE TABLE arctic_events (
  location_id BIGINT NOT NULL,
  number BIGINT NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  partition TEXT,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  taken_at TIMESTAMP WITH TIME ZONE NOT NULL,
  details TEXT NOT NULL,
  CONSTRAINT pk_arctic_events PRIMARY KEY (location_id, number),
  CONSTRAINT fk_arctic_events_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id)
);
CREATE INDEX ix_arctic_events_taken_at ON arctic_events (taken_at);
CREATE TABLE arctic_runs (
  location_id BIGINT NOT NULL,
  run_id TEXT NOT NULL,
  seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_runs PRIMARY KEY (location_id, run_id),
  CONSTRAINT fk_arctic_runs_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id)
);
CREATE TABLE arctic_holders (
  resource TEXT NOT NULL,
  holder TEXT NOT NULL,
  location_id BIGINT NOT NULL,
  CONSTRAINT pk_arctic_holders PRIMARY KEY (resource, holder),
  CONSTRAINT fk_arctic_holders_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id)
);
CREATE INDEX ix_arctic_holders_holder ON arctic_holders (holder);
CREATE TABLE arctic_notices (
  id BIGSERIAL NOT NULL,
  location_id BIGINT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  event TEXT NOT NULL,
  schedule TEXT NOT NULL,
  job_id VARCHAR(26),
  reason TEXT NOT NULL,
  tags TEXT NOT NULL,
  attempts INTEGER DEFAULT '0' NOT NULL,
  send_at TIMESTAMP WITH TIME ZONE,
  sent_to TEXT DEFAULT '{}' NOT NULL,
  problem TEXT,
  CONSTRAINT pk_arctic_notices PRIMARY KEY (id),
  CONSTRAINT fk_arctic_notices_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id)
);
CREATE INDEX ix_arctic_notices_location_id_send_at ON arctic_notices (location_id, send_at);
CREATE TABLE arctic_compaction_tasks (
  id VARCHAR(26) NOT NULL,
  table_name TEXT NOT NULL,
  queue TEXT NOT NULL,
  kind TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  state_at TIMESTAMP WITH TIME ZONE NOT NULL,
  partition TEXT NOT NULL,
  file_group TEXT NOT NULL,
  digest TEXT NOT NULL,
  files INTEGER NOT NULL,
  delete_files INTEGER NOT NULL,
  small_files INTEGER NOT NULL,
  bytes BIGINT NOT NULL,
  rows BIGINT NOT NULL,
  planned_reason TEXT NOT NULL,
  gain TEXT NOT NULL,
  level INTEGER NOT NULL,
  rank BIGINT NOT NULL,
  offered_at TIMESTAMP WITH TIME ZONE NOT NULL,
  waiting_since TIMESTAMP WITH TIME ZONE NOT NULL,
  place INTEGER DEFAULT '0' NOT NULL,
  not_before TIMESTAMP WITH TIME ZONE,
  attempts INTEGER DEFAULT '0' NOT NULL,
  max_attempts INTEGER NOT NULL,
  retry_seconds FLOAT NOT NULL,
  token BIGINT DEFAULT '0' NOT NULL,
  attempt_id VARCHAR(26),
  snapshot_id BIGINT,
  forced BOOLEAN DEFAULT false NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_arctic_compaction_tasks PRIMARY KEY (id),
  CONSTRAINT fk_arctic_compaction_tasks_table_name FOREIGN KEY(table_name) REFERENCES arctic_compaction_tables (name)
);
CREATE INDEX ix_arctic_compaction_tasks_table_name_state ON arctic_compaction_tasks (table_name, state);
CREATE INDEX ix_arctic_compaction_tasks_live ON arctic_compaction_tasks (queue) WHERE ended_at is null;
CREATE INDEX ix_arctic_compaction_tasks_retried ON arctic_compaction_tasks (not_before) WHERE state = 'failed';
CREATE INDEX ix_arctic_compaction_tasks_merged ON arctic_compaction_tasks (table_name, state_at) WHERE state = 'merged';
CREATE INDEX ix_arctic_compaction_tasks_ended_at ON arctic_compaction_tasks (ended_at);
CREATE INDEX ix_arctic_compaction_tasks_claimable ON arctic_compaction_tasks (queue, rank, id) WHERE state = 'planned';
CREATE INDEX ix_arctic_compaction_tasks_claimed ON arctic_compaction_tasks (queue) WHERE state = 'claimed';
CREATE TABLE arctic_compaction_partitions (
  table_name TEXT NOT NULL,
  partition TEXT NOT NULL,
  kind TEXT NOT NULL,
  committed_at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_compaction_partitions PRIMARY KEY (table_name, partition, kind),
  CONSTRAINT fk_arctic_compaction_partitions_table_name FOREIGN KEY(table_name) REFERENCES arctic_compaction_tables (name) ON DELETE CASCADE
);
CREATE TABLE arctic_compaction_rests (
  table_name TEXT NOT NULL,
  path TEXT NOT NULL,
  rests INTEGER NOT NULL,
  rests_until TIMESTAMP WITH TIME ZONE NOT NULL,
  reason TEXT NOT NULL,
  CONSTRAINT pk_arctic_compaction_rests PRIMARY KEY (table_name, path),
  CONSTRAINT fk_arctic_compaction_rests_table_name FOREIGN KEY(table_name) REFERENCES arctic_compaction_tables (name) ON DELETE CASCADE
);
CREATE TABLE arctic_schedule_partitions (
  schedule_id VARCHAR(26) NOT NULL,
  scope TEXT NOT NULL,
  fired_at TIMESTAMP WITH TIME ZONE NOT NULL,
  job_id VARCHAR(26) NOT NULL,
  common_number BIGINT NOT NULL,
  CONSTRAINT pk_arctic_schedule_partitions PRIMARY KEY (schedule_id, scope),
  CONSTRAINT fk_arctic_schedule_partitions_schedule_id FOREIGN KEY(schedule_id) REFERENCES arctic_schedules (id) ON DELETE CASCADE
);
CREATE TABLE arctic_deferred_arrivals (
  id BIGSERIAL NOT NULL,
  location_id BIGINT NOT NULL,
  schedule_id VARCHAR(26) NOT NULL,
  leaf INTEGER NOT NULL,
  number BIGINT NOT NULL,
  waits_for TEXT NOT NULL,
  reason TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  CONSTRAINT pk_arctic_deferred_arrivals PRIMARY KEY (id),
  CONSTRAINT uq_arctic_deferred_arrivals_schedule_id_leaf_number UNIQUE (schedule_id, leaf, number),
  CONSTRAINT fk_arctic_deferred_arrivals_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id),
  CONSTRAINT fk_arctic_deferred_arrivals_schedule_id FOREIGN KEY(schedule_id) REFERENCES arctic_schedules (id) ON DELETE CASCADE
);
CREATE INDEX ix_arctic_deferred_arrivals_location_id_waits_for_id ON arctic_deferred_arrivals (location_id, waits_for, id);
CREATE TABLE arctic_schedule_keys (
  location_id BIGINT NOT NULL,
  event_key TEXT NOT NULL,
  schedule_id VARCHAR(26) NOT NULL,
  leaf INTEGER NOT NULL,
  CONSTRAINT pk_arctic_schedule_keys PRIMARY KEY (location_id, event_key, schedule_id, leaf),
  CONSTRAINT fk_arctic_schedule_keys_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id),
  CONSTRAINT fk_arctic_schedule_keys_schedule_id FOREIGN KEY(schedule_id) REFERENCES arctic_schedules (id) ON DELETE CASCADE
);
CREATE INDEX ix_arctic_schedule_keys_schedule_id ON arctic_schedule_keys (schedule_id);
CREATE TABLE arctic_timers (
  schedule_id VARCHAR(26) NOT NULL,
  leaf INTEGER NOT NULL,
  location_id BIGINT NOT NULL,
  due_at TIMESTAMP WITH TIME ZONE NOT NULL,
  last_at TIMESTAMP WITH TIME ZONE,
  CONSTRAINT pk_arctic_timers PRIMARY KEY (schedule_id, leaf),
  CONSTRAINT fk_arctic_timers_schedule_id FOREIGN KEY(schedule_id) REFERENCES arctic_schedules (id) ON DELETE CASCADE,
  CONSTRAINT fk_arctic_timers_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id)
);
CREATE INDEX ix_arctic_timers_location_id_due_at ON arctic_timers (location_id, due_at);
CREATE TABLE arctic_jobs (
  id VARCHAR(26) NOT NULL,
  location_id BIGINT NOT NULL,
  schedule_id VARCHAR(26) NOT NULL,
  schedule_version INTEGER NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  waiting_for TEXT,
  arrivals TEXT NOT NULL,
  scope TEXT,
  partition_start TEXT,
  partition_end TEXT,
  priority INTEGER NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  satisfied_at TIMESTAMP WITH TIME ZONE,
  next_check_at TIMESTAMP WITH TIME ZONE,
  deadline_at TIMESTAMP WITH TIME ZONE,
  held_by TEXT,
  verdicts TEXT,
  launch TEXT,
  attempt INTEGER DEFAULT '0' NOT NULL,
  requested_at TIMESTAMP WITH TIME ZONE,
  requests INTEGER DEFAULT '0' NOT NULL,
  requested_tick TEXT,
  request_expires_at TIMESTAMP WITH TIME ZONE,
  run_id TEXT,
  begun_run_id TEXT,
  ended_at TIMESTAMP WITH TIME ZONE,
  forced TEXT,
  cause TEXT,
  CONSTRAINT pk_arctic_jobs PRIMARY KEY (id),
  CONSTRAINT fk_arctic_jobs_location_id FOREIGN KEY(location_id) REFERENCES arctic_locations (id),
  CONSTRAINT fk_arctic_jobs_schedule_id FOREIGN KEY(schedule_id) REFERENCES arctic_schedules (id) ON DELETE CASCADE
);
CREATE UNIQUE INDEX uq_arctic_jobs_one_waiting ON arctic_jobs (schedule_id, waiting_for) WHERE state in ('waiting_trigger', 'waiting_constraints');
CREATE INDEX ix_arctic_jobs_active ON arctic_jobs (location_id, state, requested_at) WHERE state in ('launching', 'launched');
CREATE INDEX ix_arctic_jobs_schedule_id_created_at ON arctic_jobs (schedule_id, created_at);
CREATE INDEX ix_arctic_jobs_due ON arctic_jobs (location_id, next_check_at);
CREATE INDEX ix_arctic_jobs_held ON arctic_jobs (held_by) WHERE state = 'waiting_constraints';
CREATE INDEX ix_arctic_jobs_schedule_id_scope_created_at ON arctic_jobs (schedule_id, scope, created_at);
CREATE INDEX ix_arctic_jobs_run_id ON arctic_jobs (run_id);
CREATE INDEX ix_arctic_jobs_location_id_ended_at ON arctic_jobs (location_id, ended_at);
CREATE TABLE arctic_compaction_task_files (
  table_name TEXT NOT NULL,
  path TEXT NOT NULL,
  task_id VARCHAR(26) NOT NULL,
  CONSTRAINT pk_arctic_compaction_task_files PRIMARY KEY (table_name, path),
  CONSTRAINT fk_arctic_compaction_task_files_task_id FOREIGN KEY(task_id) REFERENCES arctic_compaction_tasks (id) ON DELETE CASCADE
);
CREATE INDEX ix_arctic_compaction_task_files_task_id ON arctic_compaction_task_files (task_id);
CREATE TABLE arctic_compaction_moves (
  id BIGSERIAL NOT NULL,
  task_id VARCHAR(26) NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  from_state TEXT,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  attempt_id VARCHAR(26),
  CONSTRAINT pk_arctic_compaction_moves PRIMARY KEY (id),
  CONSTRAINT fk_arctic_compaction_moves_task_id FOREIGN KEY(task_id) REFERENCES arctic_compaction_tasks (id) ON DELETE CASCADE
);
CREATE INDEX ix_arctic_compaction_moves_task_id_id ON arctic_compaction_moves (task_id, id);
CREATE TABLE arctic_compaction_attempts (
  id VARCHAR(26) NOT NULL,
  task_id VARCHAR(26) NOT NULL,
  table_name TEXT NOT NULL,
  worker TEXT NOT NULL,
  worker_id TEXT,
  claim_key TEXT,
  token BIGINT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  directory TEXT NOT NULL,
  location TEXT,
  claimed_at TIMESTAMP WITH TIME ZONE NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
  ended_at TIMESTAMP WITH TIME ZONE,
  outputs TEXT,
  rows_in BIGINT,
  rows_deleted BIGINT,
  rows_out BIGINT,
  way TEXT,
  because TEXT,
  sort_order_id INTEGER,
  over_at TIMESTAMP WITH TIME ZONE,
  cleaned_at TIMESTAMP WITH TIME ZONE,
  clean_after TIMESTAMP WITH TIME ZONE,
  clean_trouble TEXT,
  kept_reason TEXT,
  CONSTRAINT pk_arctic_compaction_attempts PRIMARY KEY (id),
  CONSTRAINT fk_arctic_compaction_attempts_task_id FOREIGN KEY(task_id) REFERENCES arctic_compaction_tasks (id) ON DELETE CASCADE
);
CREATE INDEX ix_arctic_compaction_attempts_uncleaned ON arctic_compaction_attempts (over_at) WHERE cleaned_at is null and kept_reason is null and state in ('failed', 'lost', 'released', 'dropped');
CREATE INDEX ix_arctic_compaction_attempts_table_name_state ON arctic_compaction_attempts (table_name, state);
CREATE INDEX ix_arctic_compaction_attempts_expires ON arctic_compaction_attempts (expires_at) WHERE state = 'live';
CREATE INDEX ix_arctic_compaction_attempts_task_id ON arctic_compaction_attempts (task_id);
CREATE UNIQUE INDEX uq_arctic_compaction_attempts_live ON arctic_compaction_attempts (task_id) WHERE state = 'live';
CREATE UNIQUE INDEX uq_arctic_compaction_attempts_claims ON arctic_compaction_attempts (worker_id, claim_key) WHERE claim_key is not null;
CREATE TABLE arctic_job_events (
  job_id VARCHAR(26) NOT NULL,
  leaf INTEGER NOT NULL,
  number BIGINT NOT NULL,
  location_id BIGINT NOT NULL,
  partition TEXT NOT NULL,
  CONSTRAINT pk_arctic_job_events PRIMARY KEY (job_id, leaf, number),
  CONSTRAINT fk_arctic_job_events_job_id FOREIGN KEY(job_id) REFERENCES arctic_jobs (id) ON DELETE CASCADE
);
CREATE INDEX ix_arctic_job_events_location_id_number ON arctic_job_events (location_id, number);
CREATE INDEX ix_arctic_job_events_job_id_leaf_partition ON arctic_job_events (job_id, leaf, partition);
CREATE TABLE arctic_job_history (
  id BIGSERIAL NOT NULL,
  job_id VARCHAR(26) NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  from_state TEXT NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  actor TEXT DEFAULT '' NOT NULL,
  CONSTRAINT pk_arctic_job_history PRIMARY KEY (id),
  CONSTRAINT fk_arctic_job_history_job_id FOREIGN KEY(job_id) REFERENCES arctic_jobs (id) ON DELETE CASCADE
);
CREATE INDEX ix_arctic_job_history_job_id_id ON arctic_job_history (job_id, id);
