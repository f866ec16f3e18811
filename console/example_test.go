package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/einmal-go/einmal/console"
	"github.com/einmal-go/einmal/consumer"
	"github.com/einmal-go/einmal/status"
)

// A service mounts the console beside its probes, where only operators come.
func Example() {
	sections := status.Sections{
		"consumer": func(context.Context) (any, error) {
			return consumer.Status{Phase: consumer.Running, Group: "billing-service"}, nil
		},
	}
	page, err := console.New(console.Config{
		Title:     "billing",
		Processes: []console.Process{{Name: "billing-1", Status: status.Handler(sections, nil)}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// go page.Run(ctx) keeps the graphs of the last hour
	mux := http.NewServeMux()
	mux.Handle("/einmal/", http.StripPrefix("/einmal", page))

	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/einmal/", http.NoBody))
	fmt.Println(w.Code, strings.Contains(w.Body.String(), "All is well"))
	// Output: 200 true
}
