-- outbox: events that name their partition.

alter table outbox_event add column if not exists partition integer; -- null: the key chooses it
