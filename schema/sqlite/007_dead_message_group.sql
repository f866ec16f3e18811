-- deadletter: an index by which a table of any size can be looked through: its groups, and the dead letters of one, the newest first.

create index if not exists dead_message_group on dead_message (consumer_id, kind, error_type, id);
