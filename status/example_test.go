package status_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/einmal-go/einmal/status"
)

// Each part of a service is a section; one that fails takes nothing from the others.
func ExampleHandler() {
	mux := http.NewServeMux()
	mux.Handle("GET /einmal", status.Handler(status.Sections{
		"stock": func(context.Context) (any, error) { return map[string]int{"waiting": 3}, nil }, // billing.Status() of a Consumer
		"dead":  func(context.Context) (any, error) { return nil, errors.New("the database is away") },
	}, nil))

	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/einmal", nil))
	fmt.Println(answer.Code, answer.Header().Get("Content-Type"))
	// Output: 200 application/json
}
