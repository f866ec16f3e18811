package schema

import "testing"

// Names are put where a table, a constraint or an index is named. Comments and texts are left alone: a name could break
// out of them.
func TestNamer(t *testing.T) {
	t.Parallel()
	names := namer{schema: "s", tables: []string{"box", "box_lease"},
		other: map[string]string{"box": "b\nx", "box_lease": "l$1"}}
	for sql, want := range map[string]string{
		"create table if not exists box (box_id int, constraint box_pkey primary key (box_id))": "create table if not exists \"s\".\"b\nx\" (\"b\nx_id\" int, constraint \"b\nx_pkey\" primary key (\"b\nx_id\"))",
		"create index box_time on box (at)":                                                     "create index \"b\nx_time\" on \"s\".\"b\nx\" (at)",
		"insert into box_lease select 'box' -- of a box":                                        `insert into "s"."l$1" select 'box' -- of a box`,
		"create index box_lease_time on box_lease (time)":                                       `create index "l$1_time" on "s"."l$1" (time)`,
		"create table boxes (inbox int)":                                                        "create table boxes (inbox int)",
	} {
		if got := names.in(sql); got != want {
			t.Errorf("%s\nbecomes %s\nwant    %s", sql, got, want)
		}
	}
}
