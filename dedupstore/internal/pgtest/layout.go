package pgtest

import (
	"cmp"

	"github.com/jackc/pgx/v5"

	"github.com/einmal-go/einmal/schema"
)

// Layout is a way in which the store's table can stand in a database.
type Layout struct {
	Name      string
	Schema    string // of the table; in a Layout that is not open yet, what is added to that of the test
	Table     string // "" for processed_event
	DoNothing bool   // what the store is to be told

	partitioned string // the clause, if it is
	partitions  string // their statements
	idType      string // "" for text
}

// The layouts.
var (
	Plain   = Layout{Name: "plain"}
	Renamed = Layout{Name: "renamed", Schema: ` "Ä?0`, Table: `seen "by" us`}
	Cheap   = Layout{Name: "do nothing", DoNothing: true}
	ByHash  = Layout{
		Name: "partitioned by hash", partitioned: "partition by hash (event_id)",
		partitions: `create table part0 partition of processed_event for values with (modulus 2, remainder 0);
			create table part1 partition of processed_event for values with (modulus 2, remainder 1);`,
	}
	// ByRange has partitions for UUIDv7 ids as text, and for whatever else the suite thinks of.
	ByRange = Layout{
		Name: "partitioned by range", partitioned: "partition by range (event_id)",
		partitions: `create table part0 partition of processed_event for values from (minvalue) to ('0190');
			create table part1 partition of processed_event for values from ('0190') to ('01a0');
			create table part2 partition of processed_event for values from ('01a0') to (maxvalue);`,
	}
	// ByUUID has one partition, for the UUIDv7 ids of the years 2024 to 2059.
	ByUUID = Layout{
		Name: "partitioned by UUIDv7", partitioned: "partition by range (event_id)", idType: "uuid",
		partitions: `create table part1 partition of processed_event
			for values from ('018cc251-f400-0000-0000-000000000000') to ('02950000-0000-0000-0000-000000000000');`,
	}
)

// TableSQL is the table as it stands in SQL.
func (l Layout) TableSQL() string {
	name := pgx.Identifier{cmp.Or(l.Table, "processed_event")}
	if l.Schema != "" {
		name = append(pgx.Identifier{l.Schema}, name...)
	}
	return name.Sanitize()
}

// sql creates the table: as package schema has it, or with the same columns and partitions.
func (l Layout) sql() string {
	if l.partitioned == "" {
		return schema.Postgres.SQL(&schema.Config{Schema: l.Schema, Tables: map[string]string{"processed_event": l.Table}},
			schema.Dedup)
	}
	idType := cmp.Or(l.idType, `text collate "C"`)
	return `create table processed_event (event_id ` + idType + ` not null, consumer_id text collate "C" not null,
		processed_at timestamptz not null default clock_timestamp(), duplicates integer not null default 0,
		primary key (event_id, consumer_id)) ` + l.partitioned + ";\n" + l.partitions
}
