package schema_test

import (
	"fmt"

	"github.com/einmal-go/einmal/schema"
)

func ExampleDialect_Files() {
	for _, file := range schema.Postgres.Files(schema.Dedup) {
		fmt.Println(file.Name)
	}
	// Output:
	// 001_processed_event.sql
}
