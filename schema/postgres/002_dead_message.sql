-- deadletter: the messages that were given up, one row each, until they are redriven or discarded. The record of the event in processed_event was
-- written in the same transaction.

create table if not exists dead_message (
  id             bigint      not null generated always as identity,
  -- the key of the record in processed_event
  consumer_id    text collate "C" not null,
  event_id       text collate "C" not null,
  -- where the message stood
  group_id       text        not null default '',
  topic          text        not null,
  topic_id       text        not null default '',
  partition      integer     not null,
  kafka_offset   bigint      not null,
  message_time   timestamptz,
  -- what it was, byte by byte; left_out says that it was too large, and that value and headers are not here
  key            bytea,
  value          bytea,
  headers        jsonb       not null default '[]',
  size           bigint      not null default 0,
  left_out       boolean     not null default false,
  -- why it is here
  kind           text        not null,
  error_type     text        not null default '',
  error          text        not null default '',
  attempts       integer     not null default 1,
  first_attempt  timestamptz,
  died_at        timestamptz not null default clock_timestamp(),
  einmal_version text        not null default '',
  trace_id       text        not null default '',
  -- redrives that have failed
  redrives       integer     not null default 0,
  redrive_error  text        not null default '',
  constraint dead_message_pkey primary key (id)
);
